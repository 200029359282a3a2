"""What keeps models asleep, wakes them, and lets them sleep again."""
