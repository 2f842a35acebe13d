//! TLS to remote endpoints: checks certificates against the authorities that the system trusts, or the authorities in
//! `SSL_CERT_FILE` and `SSL_CERT_DIR`. Never accepts a certificate that does not prove the name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub(crate) type TlsStream = tokio_rustls::client::TlsStream<TcpStream>;

/// A handshake takes two round trips.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Read once: authorities change with system updates, after which the pool is restarted.
static CONFIG: OnceCell<Arc<ClientConfig>> = OnceCell::const_new();

/// The file of additional authorities.
static AUTHORITIES: OnceLock<PathBuf> = OnceLock::new();

pub(crate) async fn handshake(
    stream: TcpStream,
    name: ServerName<'static>,
) -> io::Result<TlsStream> {
    let config = CONFIG.get_or_try_init(read_authorities).await?;
    let connector = TlsConnector::from(Arc::clone(config));
    match timeout(HANDSHAKE_MAX, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(describe(&error)),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!(
                "it accepts connections but has not answered the TLS handshake for {} s; is it plain http?",
                HANDSHAKE_MAX.as_secs()
            ),
        )),
    }
}

/// Performs a handshake with a server of this name, whose certificate an authority of the system must have signed.
///
/// # Errors
/// If the certificate does not prove the name, the error contains advice.
pub async fn connect_trusted(
    stream: TcpStream,
    host: String,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    handshake(stream, name).await
}

/// Trusts the authorities of this PEM file too, in all later connections of this process. Only the first call counts.
///
/// # Errors
/// If the file has no usable certificates.
pub fn trust_authorities(file: &Path) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    add_file(&mut roots, file, "--ca-file").map_err(|error| error.to_string())?;
    let _ = AUTHORITIES.set(file.to_owned());
    Ok(())
}

async fn read_authorities() -> io::Result<Arc<ClientConfig>> {
    let read = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs).await;
    let found = read.map_err(io::Error::other)?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    let added = added + add_named(&mut roots)?;
    if added == 0 {
        let why = found.errors.first().map(|error| format!(": {error}"));
        return Err(io::Error::other(format!(
            "no certificate authorities found{}; install ca-certificates, or set SSL_CERT_FILE",
            why.unwrap_or_default()
        )));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Adds the certificates of the files that `trust_authorities` and `MODEL_POOL_CA_FILE` name, and returns their number.
fn add_named(roots: &mut RootCertStore) -> io::Result<usize> {
    let variable = "MODEL_POOL_CA_FILE";
    let named = std::env::var_os(variable).filter(|file| !file.is_empty());
    let named = named.map(|file| (variable, PathBuf::from(file)));
    let own = AUTHORITIES.get().map(|file| ("--ca-file", file.clone()));
    let files = own.into_iter().chain(named);
    files
        .map(|(source, file)| add_file(roots, &file, source))
        .sum()
}

fn add_file(roots: &mut RootCertStore, file: &Path, source: &str) -> io::Result<usize> {
    let wrong = |why: String| {
        io::Error::other(format!(
            "{source} ({}) {why}; name a PEM file of certificate authorities",
            file.display()
        ))
    };
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let (added, ignored) = roots.add_parsable_certificates(read);
    if added == 0 || ignored > 0 {
        return Err(wrong(format!(
            "has {added} usable certificates and {ignored} others"
        )));
    }
    Ok(added)
}

/// Adds advice to the error, and keeps its kind, which the liveness watch reads.
fn describe(error: &io::Error) -> io::Error {
    let text = error.to_string();
    // A bad signature comes from another authority with the same name.
    let advice = if text.contains("UnknownIssuer") || text.contains("BadSignature") {
        "; set SSL_CERT_FILE or MODEL_POOL_CA_FILE in this program's environment to the authority that signed its certificate"
    } else if text.contains("NotValidForName") {
        "; its certificate is for a different name than that of the url"
    } else if text.contains("Expired") {
        "; its certificate has expired, or this machine's clock is wrong"
    } else if text.contains("InvalidContentType") {
        "; it does not speak TLS; the url may have to begin with http://"
    } else {
        ""
    };
    io::Error::new(error.kind(), format!("TLS fails: {text}{advice}"))
}
