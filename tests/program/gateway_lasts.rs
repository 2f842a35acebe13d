//! Robustness of the gateway: the real program with clients of all kinds. Each topic has a file.

mod access_log;
mod disconnects;
mod grammars;
mod http2;
mod names;
mod route_paths;
mod slow;
mod slow_readers;
mod tls;
