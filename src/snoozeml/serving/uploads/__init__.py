"""Models that clients send: received, checked, put in their place, all of it or nothing."""
