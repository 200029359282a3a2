"""Values only: requests, deadlines, tensor signatures, plans."""
