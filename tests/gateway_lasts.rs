//! A gateway that lasts: the real program as clients of all manners meet it. Each theme has a file.

#[path = "gateway_lasts/http2.rs"]
mod http2;
#[path = "gateway_lasts/leaving.rs"]
mod leaving;
#[path = "gateway_lasts/names.rs"]
mod names;
#[path = "support/net.rs"]
mod net;
#[path = "gateway_lasts/slow.rs"]
mod slow;
#[path = "support/stub.rs"]
mod stub;
#[path = "gateway_lasts/tls.rs"]
mod tls;
#[path = "support/whole.rs"]
mod whole;
#[path = "gateway_lasts/written.rs"]
mod written;
