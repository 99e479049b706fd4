"""Routes of the training API, one file a noun; paths are relative to the API's prefix (gate.py)."""
