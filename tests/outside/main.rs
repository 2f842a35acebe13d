//! Tests with third-party programs. Without them the tests print that they were skipped, or fail where
//! `MODEL_POOL_TESTS_REQUIRE` names the program.

mod buckets;
mod clients;
mod dashboard;
mod llama_server;
mod shared_limits;
