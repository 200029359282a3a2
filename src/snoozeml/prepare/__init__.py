"""Turns a model into a plan, in a short-lived process."""
