//! TLS with one certificate and key, read at start and again when the files change. Invalid new files change nothing, and open
//! connections keep the certificate they began with.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

use config::TlsFiles;

/// Interval between checks of the files.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("server.tls.{key} {path} cannot be used: {why}")]
    File {
        key: &'static str,
        path: String,
        why: String,
    },
    #[error("server.tls cannot be used: {0}")]
    Setup(rustls::Error),
}

pub(super) struct Tls {
    files: TlsFiles,
    current: Arc<Current>,
    /// The state of the files when they were last read, successfully or not.
    looks: Mutex<Looks>,
    pub acceptor: TlsAcceptor,
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Modification time and length of each file; `None` for a missing file.
type Looks = [Option<(SystemTime, u64)>; 2];

fn look(files: &TlsFiles) -> Looks {
    [&files.cert, &files.key].map(|path| {
        let facts = std::fs::metadata(path).ok()?;
        Some((facts.modified().ok()?, facts.len()))
    })
}

impl Tls {
    pub fn open(files: &TlsFiles) -> Result<Tls, TlsError> {
        let looks = look(files);
        let certified = read(files)?;
        show_fingerprint(&certified);
        let current = Arc::new(Current(ArcSwap::new(certified)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls {
            files: files.clone(),
            current,
            looks: Mutex::new(looks),
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }

    /// Reads the files again, for new connections. Invalid files change nothing.
    pub fn reload(&self) -> Result<(), TlsError> {
        let looks = look(&self.files);
        let fresh = read(&self.files);
        *self.looks.lock().unwrap_or_else(PoisonError::into_inner) = looks;
        let fresh = fresh?;
        if fresh.cert != self.current.0.load().cert {
            self.current.0.store(fresh);
            tracing::info!(cert = %self.files.cert.display(), "loaded the new certificate for new connections");
            show_fingerprint(&self.current.0.load());
        }
        Ok(())
    }

    /// Reloads if a file has changed. If a check falls between the replacement of the two files, the next one completes the change.
    pub fn look_again(&self) {
        let is_same =
            *self.looks.lock().unwrap_or_else(PoisonError::into_inner) == look(&self.files);
        if !is_same && let Err(error) = self.reload() {
            tracing::warn!("{error}; keeping the previous certificate");
        }
    }
}

/// For nodes that do not trust the certificate's authority.
fn show_fingerprint(certified: &CertifiedKey) {
    if let Some(certificate) = certified.cert.first() {
        let fingerprint = engine::Fingerprint::new(certificate);
        tracing::info!("the certificate for `model-pool node --fingerprint` is {fingerprint}");
    }
}

/// Checks that the files can be used, without serving them.
pub fn check_tls(files: &TlsFiles) -> Result<(), TlsError> {
    read(files).map(|_| ())
}

fn read(files: &TlsFiles) -> Result<Arc<CertifiedKey>, TlsError> {
    let bad = |key: &'static str, path: &Path, why: String| TlsError::File {
        key,
        path: path.display().to_string(),
        why,
    };
    let bad_cert = |why: String| bad("cert", &files.cert, why);
    let bad_key = |why: String| bad("key", &files.key, why);
    let text = std::fs::read(&files.cert).map_err(|error| bad_cert(error.to_string()))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| bad_cert(format!("it is not PEM: {error}")))?;
    if chain.is_empty() {
        return Err(bad_cert("it contains no PEM certificate".to_owned()));
    }
    let text = std::fs::read(&files.key).map_err(|error| bad_key(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| bad_key("it contains no PEM private key".to_owned()))?;
    let certified = CertifiedKey::from_der(chain, key, &default_provider());
    let certified = certified.map_err(|error| {
        let why = match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("it is not the key of {}", files.cert.display())
            }
            other => other.to_string(),
        };
        bad_key(why)
    })?;
    Ok(Arc::new(certified))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, cert: &rcgen::CertifiedKey<rcgen::KeyPair>) -> TlsFiles {
        let files = TlsFiles {
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
        };
        std::fs::write(&files.cert, cert.cert.pem()).unwrap();
        std::fs::write(&files.key, cert.signing_key.serialize_pem()).unwrap();
        files
    }

    fn fresh() -> rcgen::CertifiedKey<rcgen::KeyPair> {
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap()
    }

    #[test]
    fn new_certificate_files_are_loaded_and_broken_ones_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let files = write(folder.path(), &fresh());
        let tls = Tls::open(&files).unwrap();
        let first = tls.current.0.load_full();
        write(folder.path(), &fresh());
        tls.reload().unwrap();
        let second = tls.current.0.load_full();
        assert_ne!(first.cert, second.cert);
        std::fs::write(&files.cert, "nothing").unwrap();
        let error = tls.reload().unwrap_err().to_string();
        assert!(
            error.contains("cert.pem") && error.contains("no PEM certificate"),
            "{error}"
        );
        assert_eq!(tls.current.0.load_full().cert, second.cert);
    }

    #[test]
    fn each_broken_certificate_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let files = write(folder.path(), &fresh());
        let other = fresh().signing_key.serialize_pem();
        std::fs::write(&files.key, other).unwrap();
        let wrong = |files: &TlsFiles| Tls::open(files).err().unwrap().to_string();
        assert!(
            wrong(&files).contains("is not the key of"),
            "{}",
            wrong(&files)
        );
        std::fs::write(&files.key, "nothing").unwrap();
        assert!(wrong(&files).contains("key.pem cannot be used: it contains no PEM private key"));
        std::fs::remove_file(&files.cert).unwrap();
        assert!(
            wrong(&files).contains("server.tls.cert"),
            "{}",
            wrong(&files)
        );
    }
}
