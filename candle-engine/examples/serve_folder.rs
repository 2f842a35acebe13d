//! Serves one model folder on 127.0.0.1 until Ctrl-C: `serve_folder FOLDER PORT [CONCURRENCY]`. For experiments and measurements;
//! not part of the service.

use candle_engine::{EngineOptions, Listen, serve};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(port)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve_folder FOLDER PORT [CONCURRENCY]".into());
    };
    let model_dir = PathBuf::from(folder);
    let name = model_dir.file_name().map_or_else(
        || "model".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let listen = Listen::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?)));
    let options = EngineOptions {
        concurrency: arguments.next().map_or(Ok(4), |count| count.parse())?,
        ..EngineOptions::new(model_dir, name, listen)
    };
    serve(options, async { drop(tokio::signal::ctrl_c().await) }).await?;
    Ok(())
}
