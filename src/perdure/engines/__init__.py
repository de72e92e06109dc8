"""The engines: backends of the kernel. They move bytes and know nothing of threads, runs or branches."""
