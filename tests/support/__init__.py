"""What the tests, the benchmarks and the tools share: private database servers, a faulty proxy, engine providers."""
