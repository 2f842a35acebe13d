//! TLS to a server whose certificate is known by its fingerprint. No authority and no name is needed, and no other certificate is
//! accepted.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ring::digest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
};

use super::tls::TlsStream;

/// A handshake takes two round trips.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
const PREFIX: &str = "sha256:";

/// SHA-256 of a certificate in DER, which `openssl x509 -fingerprint -sha256` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn new(certificate: &[u8]) -> Fingerprint {
        let hash = digest::digest(&digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.as_ref());
        Fingerprint(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is not a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a fingerprint is sha256: and 64 hexadecimal digits, with or without colons; `openssl x509 -in CERTIFICATE -noout -fingerprint -sha256` prints it"
)]
pub struct NoFingerprint;

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    fn from_str(text: &str) -> Result<Fingerprint, NoFingerprint> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(NoFingerprint)?;
        let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(NoFingerprint);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let high = char::from(pair[0]).to_digit(16).ok_or(NoFingerprint)?;
            let low = char::from(pair[1]).to_digit(16).ok_or(NoFingerprint)?;
            *byte = (high << 4 | low) as u8;
        }
        Ok(Fingerprint(bytes))
    }
}

/// Performs a handshake with the server, which must present exactly this certificate.
///
/// # Errors
/// An error names the fingerprint that the server has instead.
pub async fn connect(
    stream: TcpStream,
    fingerprint: Fingerprint,
    address: IpAddr,
) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let provider = Arc::new(default_provider());
    let verifier = PinnedVerifier {
        fingerprint,
        algorithms: provider.signature_verification_algorithms,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::IpAddress(address.into());
    let shaken: Result<TlsStream, io::Error> =
        match timeout(HANDSHAKE_MAX, connector.connect(name, stream)).await {
            Ok(shaken) => shaken.map_err(wrong_certificate_or),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "it has not answered the TLS handshake for {} s; is it plain http?",
                    HANDSHAKE_MAX.as_secs()
                ),
            )),
        };
    shaken
}

/// rustls wraps the verifier's error and shows it with `Debug`. Unwraps it for the caller.
fn wrong_certificate_or(error: io::Error) -> io::Error {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    if let Some(Error::InvalidCertificate(CertificateError::Other(other))) = inner
        && let Some(wrong) = other.0.downcast_ref::<WrongCertificate>()
    {
        return io::Error::new(io::ErrorKind::InvalidData, *wrong);
    }
    error
}

#[derive(Debug)]
struct PinnedVerifier {
    fingerprint: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedVerifier {
    /// Neither the name nor the dates matter, so nothing depends on a clock.
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::new(certificate);
        if found == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::Other(
                tokio_rustls::rustls::OtherError(Arc::new(WrongCertificate {
                    expected: self.fingerprint,
                    found,
                })),
            )))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The server has another certificate than expected.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("its certificate has the fingerprint {found}, and {expected} is expected")]
pub struct WrongCertificate {
    expected: Fingerprint,
    found: Fingerprint,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_parses_with_and_without_colons_and_is_written_in_one_form() {
        let plain = format!("sha256:{}", "0a".repeat(32));
        let colons = format!("sha256:{}", ["0A"; 32].join(":"));
        let fingerprint: Fingerprint = plain.parse().expect("a fingerprint");
        assert_eq!(colons.parse(), Ok(fingerprint));
        assert_eq!(fingerprint.to_string(), plain);
        for wrong in [
            "",
            "0a",
            "sha256:0a",
            "sha1:0a",
            &format!("sha256:{}", "g".repeat(64)),
        ] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(NoFingerprint), "{wrong}");
        }
    }
}
