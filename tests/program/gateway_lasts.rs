//! Robustness of the gateway: the real program with clients of all kinds. Each topic has a file.

mod both_ways;
mod grammars;
mod http2;
mod leaving;
mod names;
mod slow;
mod slow_readers;
mod tls;
mod written;
