//! The certificates that a client of the pool trusts, and the explanation of certificate errors.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};

use crate::error::chain;

/// The client's TLS settings: trusts the system's authorities and the certificates of this PEM file. A server may also present a
/// certificate of the file itself.
///
/// # Errors
/// If the file cannot be read, or contains no certificate.
pub fn client_config(file: &Path) -> Result<ClientConfig, String> {
    let wrong = |why: String| {
        format!(
            "{} (--ca-file or MODEL_POOL_CA_FILE) {why}; name a PEM file with the certificate of the authority, or of the server",
            file.display()
        )
    };
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<_, _>>);
    let named: Vec<CertificateDer<'static>> =
        read.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if named.is_empty() {
        return Err(wrong("holds no certificate".to_owned()));
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in &named {
        let added = roots.add(certificate.clone());
        added.map_err(|error| wrong(format!("holds a certificate that is not usable: {error}")))?;
    }
    let provider = Arc::new(default_provider());
    let by_authority =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| wrong(format!("cannot be used: {error}")))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let verifier = Arc::new(CertificateVerifier {
        named,
        by_authority,
    });
    // The verifier checks signature and name. The library calls every custom verifier dangerous.
    let builder = builder.dangerous();
    let config = builder.with_custom_certificate_verifier(verifier);
    Ok(config.with_no_client_auth())
}

/// Accepts certificates signed by an authority, and the certificates in the file.
struct CertificateVerifier {
    named: Vec<CertificateDer<'static>>,
    by_authority: Arc<WebPkiServerVerifier>,
}

impl fmt::Debug for CertificateVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} certificates of a file", self.named.len())
    }
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let verified = self.by_authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let is_named = self.named.iter().any(|named| named == end_entity);
        // `openssl req -x509` marks a server's own certificate as an authority, which the library rejects.
        match verified {
            Err(error) if is_named && is_of_authority(&error) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.by_authority
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.by_authority
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

fn is_of_authority(error: &TlsError) -> bool {
    error.to_string().contains(OWN_CERTIFICATE)
}

/// The library's error for an authority's certificate that is presented by a server.
const OWN_CERTIFICATE: &str = "CaUsedAsEndEntity";

/// Returns the problem with a server's certificate and its remedy, if that is why a request failed.
pub fn problem(error: &(dyn Error + 'static)) -> Option<CertificateProblem> {
    // The innermost cause, without the messages of the libraries in between.
    let text = chain(error).last()?.to_string();
    let words = [
        "invalid peer certificate",
        "certificate not valid",
        OWN_CERTIFICATE,
    ];
    if !words.iter().any(|words| text.contains(words)) {
        return None;
    }
    let (what, advice) = if text.contains(OWN_CERTIFICATE) || text.contains("SelfSigned") {
        (
            "the server presents its own certificate, which no authority has signed",
            "Copy it from the server (server.tls.cert), and name it with --ca-file or MODEL_POOL_CA_FILE.",
        )
    } else if text.contains("UnknownIssuer") || text.contains("BadSignature") {
        (
            "the server's certificate is signed by an authority that this machine does not know",
            "Name the authority's certificate with --ca-file or MODEL_POOL_CA_FILE, or add it to the system's.",
        )
    } else if text.contains("NotValidForName") || text.contains("not valid for name") {
        (
            "the server's certificate is for another name",
            "Use a name of the certificate in --server (MODEL_POOL_SERVER), or have a certificate made for this one.",
        )
    } else if text.contains("NotValidYet") || text.contains("not valid yet") {
        (
            "the server's certificate is not valid yet",
            "Compare the clocks of this machine and of the server.",
        )
    } else if text.contains("xpired") {
        (
            "the server's certificate has expired",
            "Renew it on the server, or compare the clocks of this machine and of the server.",
        )
    } else {
        (
            "the server's certificate cannot be trusted",
            "Name its certificate, or that of its authority, with --ca-file or MODEL_POOL_CA_FILE.",
        )
    };
    Some(CertificateProblem {
        what,
        advice,
        detail: text,
    })
}

/// A certificate that is not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateProblem {
    pub what: &'static str,
    pub advice: &'static str,
    /// The library's message.
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untrusted_certificate_is_explained_with_advice() {
        for (text, what, advice) in [
            (
                "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
                "its own certificate",
                "server.tls.cert",
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                "does not know",
                "--ca-file",
            ),
            (
                "invalid peer certificate: certificate not valid for name \"gpu\"; certificate is only valid for DnsName(\"lab\")",
                "another name",
                "MODEL_POOL_SERVER",
            ),
            (
                "invalid peer certificate: certificate expired: verification time 3 (UNIX)",
                "has expired",
                "clocks",
            ),
        ] {
            let error = std::io::Error::other(std::io::Error::other(text));
            let problem = problem(&error).expect(text);
            assert!(problem.what.contains(what), "{problem:?}");
            assert!(problem.advice.contains(advice), "{problem:?}");
            assert_eq!(problem.detail, text);
        }
        let refused = std::io::Error::other("connection refused");
        assert_eq!(problem(&refused), None);
    }

    #[test]
    fn a_file_without_certificates_is_refused_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        let refused = client_config(&file).expect_err("missing");
        assert!(
            refused.contains("ca.pem") && refused.contains("cannot be read"),
            "{refused}"
        );
        std::fs::write(&file, "no certificate").expect("written");
        let refused = client_config(&file).expect_err("empty");
        assert!(refused.contains("holds no certificate"), "{refused}");
    }
}
