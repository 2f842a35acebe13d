//! A gateway that lasts: the real program as clients of all manners meet it. Each theme has a file.

mod both_ways;
mod grammars;
mod http2;
mod leaving;
mod names;
mod slow;
mod slow_readers;
mod tls;
mod written;
