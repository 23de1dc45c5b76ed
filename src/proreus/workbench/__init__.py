"""Tools that `proreus run` never imports: simulation, the embedded cluster, benchmarks."""
