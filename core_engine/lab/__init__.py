"""The laboratory: an executor without a model, workloads, simulation in virtual time, benchmarks."""
