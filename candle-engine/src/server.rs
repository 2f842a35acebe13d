//! The life cycle of an engine: listen, load, serve, stop.

mod routes;

use crate::adapters::Adapters;
use crate::batch::{Batch, BatchSleeper, Generator};
use crate::decoder_service::DecoderService;
use crate::encoder;
use crate::error::EngineError;
use crate::loading;
use crate::options::{EngineOptions, Listen};
use crate::progress::Progress;
use crate::readers::Readers;
use crate::sleep::SleepGate;
use crate::speech::{self, SpeechService};
use axum::serve::ListenerExt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream};
use tokio::sync::oneshot;

/// The state of the routes.
struct Engine {
    model_name: String,
    started_unix_seconds: u64,
    progress: Progress,
    sleep_gate: Arc<SleepGate>,
    ready: OnceLock<ServedModel>,
    readers: Readers,
}

/// The loaded model.
enum ServedModel {
    Decoder(DecoderService),
    Encoder(Arc<encoder::Service>),
    Speech(Arc<SpeechService>),
}

impl ServedModel {
    /// The decoder that computes, if there is one.
    fn generator(&self) -> Option<&Generator> {
        match self {
            Self::Decoder(ready) => Some(&ready.model.generator),
            Self::Encoder(service) => service.generator(),
            Self::Speech(_) => None,
        }
    }
}

/// Maximum number of connections waiting to be accepted in a burst; the operating system caps it.
const BACKLOG: u32 = 4096;

fn listener_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves one model until `shutdown` completes, then accepts no new requests and returns when the running ones are finished; the
/// caller limits how long that may take. Listens before it loads; `GET /health` reports the progress.
///
/// # Errors
/// If the options are invalid, the address is not available, or the model cannot be loaded. The error's `Display` prints
/// one line, suitable as the process's final message.
pub async fn serve(
    options: EngineOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), EngineError> {
    options.validate()?;
    let engine = Arc::new(Engine {
        model_name: options.model_name.clone(),
        started_unix_seconds: crate::calendar::unix_seconds(),
        progress: Progress::default(),
        sleep_gate: Arc::default(),
        ready: OnceLock::new(),
        readers: Readers::new(options.tokenizer_workers),
    });
    let router = routes::router(Arc::clone(&engine));
    match &options.listen {
        Listen::Tcp(address) => {
            let listening = |source| EngineError::Listen {
                address: address.to_string(),
                source,
            };
            let listener = listener_at(*address).map_err(listening)?;
            tracing::info!(address = %listener.local_addr().map_err(listening)?, "listening");
            // Disables Nagle's algorithm: small chunks of a stream must not wait for each other.
            let listener = listener.tap_io(|stream| {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY cannot be set");
                }
            });
            let server = axum::serve(listener, router).with_graceful_shutdown(shutdown);
            run(engine, options, server.into_future()).await
        }
        Listen::Unix(path) => {
            let path = path.clone();
            let listener = bind_unix(&path)
                .await
                .map_err(|source| EngineError::Listen {
                    address: path.display().to_string(),
                    source,
                })?;
            tracing::info!(socket = %path.display(), "listening");
            let server = axum::serve(listener, router).with_graceful_shutdown(shutdown);
            let result = run(engine, options, server.into_future()).await;
            if let Err(error) = std::fs::remove_file(&path) {
                tracing::debug!(%error, "the socket file had already been removed");
            }
            result
        }
    }
}

/// Serves while the model loads; a failed load ends both.
async fn run(
    engine: Arc<Engine>,
    options: EngineOptions,
    server: impl Future<Output = std::io::Result<()>>,
) -> Result<(), EngineError> {
    let (tell, reply) = oneshot::channel();
    let loader = Arc::clone(&engine);
    // A separate thread, because the runtime would wait for a blocking task before the process can exit.
    std::thread::Builder::new()
        .name("load".to_owned())
        .spawn(move || {
            let _ = tell.send(load(&loader, &options));
        })
        .map_err(|error| EngineError::load(format!("cannot start a thread ({error})")))?;
    let failed_load = async {
        match reply.await {
            Ok(Ok(())) => std::future::pending().await,
            Ok(Err(error)) => error,
            Err(_) => EngineError::load("the loading thread panicked"),
        }
    };
    let result = tokio::select! {
        served = server => served.map_err(EngineError::Serve),
        error = failed_load => Err(error),
    };
    engine.progress.cancel();
    result
}

fn load(engine: &Engine, options: &EngineOptions) -> Result<(), EngineError> {
    if let Some(threads) = options.threads
        && let Err(error) = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build_global()
    {
        tracing::warn!(%error, "the number of threads was set before and is not changed");
    }
    if let Some(config) = encoder::config_of(options)? {
        let (model, encoder) = encoder::load(options, &config, &engine.progress)?;
        let service = encoder::Service::start(options.model_name.clone(), model, encoder)?;
        ready_to_encode(engine, service);
        return Ok(());
    }
    if let Some(config) = speech::config_of(options)? {
        let model = speech::load(options, &config, &engine.progress)?;
        let service = SpeechService::start(options.model_name.clone(), model)?;
        let weights_bytes = service.model.weights_bytes;
        tracing::info!(model = %service.model_name, weights_bytes, "ready");
        let _ = engine.ready.set(ServedModel::Speech(Arc::new(service)));
        return Ok(());
    }
    let mut files = loading::open(options, &engine.progress)?;
    let purpose = encoder::Purpose::new(&files, options.task)?;
    let model = Arc::new(loading::load(&mut files, options, &engine.progress)?);
    if let Some(service) = encoder::of_decoder(options, purpose, &files, &model)? {
        ready_to_encode(engine, service);
        return Ok(());
    }
    let batch = Arc::new(Batch::start(&model.generator, &model.tokenizer)?);
    let adapters = Adapters::new(&options.adapters);
    adapters.start(&options.adapters, &batch)?;
    let rest = BatchSleeper {
        batch: Arc::clone(&batch),
        files: model.files.clone(),
    };
    let ready = DecoderService {
        model_name: options.model_name.clone(),
        model,
        batch,
        adapters,
        sleepers: vec![Arc::new(rest)],
    };
    tracing::info!(model = %ready.model_name, weights_bytes = ready.model.generator.weights.bytes, "ready");
    let _ = engine.ready.set(ServedModel::Decoder(ready));
    Ok(())
}

fn ready_to_encode(engine: &Engine, service: encoder::Service) {
    let (weights_bytes, _) = service.weights_bytes();
    tracing::info!(model = %service.model_name, weights_bytes, "ready");
    let _ = engine.ready.set(ServedModel::Encoder(Arc::new(service)));
}

/// Binds the socket. Replaces the file of a dead engine, but not a live one.
async fn bind_unix(path: &Path) -> std::io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => match UnixStream::connect(path).await
        {
            Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            _ => Err(error),
        },
        result => result,
    }
}
