//! Beside programs that other people wrote. Without them the tests say that they were skipped,
//! or fail where `MODEL_POOL_TESTS_REQUIRE` names the program.

mod buckets;
mod clients;
mod llama_server;
mod shared_limits;
