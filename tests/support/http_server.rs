//! HTTP servers on free local ports, each on a separate thread.
use std::net::{SocketAddr, TcpListener};
use std::thread;

use axum::Router;
use tokio::sync::oneshot;

/// Serves until the process ends.
pub fn serve(routes: Router) -> SocketAddr {
    let listener = free_port();
    let address = listener.local_addr().unwrap();
    run(listener, routes, std::future::pending());
    address
}

/// Serves until the returned guard is dropped. The routes may need the listener's address.
#[must_use]
pub fn serve_while_held(listener: TcpListener, routes: Router) -> oneshot::Sender<()> {
    let (stop, stopped) = oneshot::channel::<()>();
    run(listener, routes, async move {
        let _ = stopped.await;
    });
    stop
}

pub fn free_port() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn run(listener: TcpListener, routes: Router, over: impl Future<Output = ()> + Send + 'static) {
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            tokio::select! {
                served = axum::serve(listener, routes) => served.unwrap(),
                () = over => {}
            }
        });
    });
}
