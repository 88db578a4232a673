"""headrace: gRPC inference that keeps every CUDA stream of a GPU full."""
