"""What the user asked for: schema, loading, discovery of models."""
