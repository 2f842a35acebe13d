//! Tests with third-party programs. Without them the tests report that they were skipped, or fail if `MODEL_POOL_TESTS_REQUIRE`
//! names the program.

mod agents;
mod bucket_adapters;
mod buckets;
mod client_libraries;
mod clients;
mod cluster_calls;
mod cuda;
mod dashboard;
mod flag_lists;
mod generators;
mod grafana;
mod helm;
mod llama_server;
mod mcp;
mod open_webui;
mod otel;
mod postgres;
mod promtool;
mod ray;
mod shared_limits;
mod slurm;
mod table;
mod vllm;
