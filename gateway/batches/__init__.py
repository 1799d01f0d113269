"""Files, and batches of requests that are read from them: kept on disk, so that they outlive this process."""
