//! A pool with a private TLS certificate: clients report the problem, and trust the certificate once its file or its authority's is
//! configured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use support::service::Pool;

use super::commands::CommandOutput;

/// A pool with a certificate for `localhost`, and the file that clients must trust.
struct Lab {
    pool: Pool,
    ca_file: PathBuf,
    _folder: tempfile::TempDir,
}

fn pool_with(folder: tempfile::TempDir, cert: &str, key: &str, ca_file: &str) -> Lab {
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("cert.pem"), cert).expect("written");
    std::fs::write(path("key.pem"), key).expect("written");
    std::fs::write(path("ca.pem"), ca_file).expect("written");
    let tls = format!(
        "{{cert: {:?}, key: {:?}}}",
        path("cert.pem"),
        path("key.pem")
    );
    let model = "engine_config: {model_id: m, type: CommandEngine, listen: port, command: [x, \"{{ port }}\"]}\npool_config: {memory_gib: 1}\n";
    let model = ("m.yaml".to_owned(), model.to_owned());
    Lab {
        pool: Pool::with_env(&[model], "", &[("MODEL_POOL__SERVER__TLS", &tls)]),
        ca_file: path("ca.pem"),
        _folder: folder,
    }
}

/// As created by `openssl req -x509`: the server's certificate is also an authority.
fn own_certificate() -> Lab {
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let cert = params.self_signed(&key).expect("a certificate").pem();
    let folder = tempfile::tempdir().expect("a folder");
    pool_with(folder, &cert, &key.serialize_pem(), &cert)
}

/// Signed by a private authority.
fn own_authority() -> Lab {
    let mut of_authority = CertificateParams::default();
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = KeyPair::generate().expect("a key");
    let issuer = CertifiedIssuer::self_signed(of_authority, authority).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let cert = params
        .signed_by(&key, &issuer)
        .expect("a certificate")
        .pem();
    let folder = tempfile::tempdir().expect("a folder");
    pool_with(folder, &cert, &key.serialize_pem(), &issuer.pem())
}

impl Lab {
    fn run(
        &self,
        program: &Path,
        words: &[&str],
        host: &str,
        ca_file: Option<&Path>,
    ) -> CommandOutput {
        let (_, port) = self.pool.address().rsplit_once(':').expect("a port");
        let mut command = Command::new(program);
        command
            .args(words)
            .env("MODEL_POOL_SERVER", format!("https://{host}:{port}"))
            .env("MODEL_POOL_ADMIN_KEY", self.pool.admin_key())
            .stdin(Stdio::null());
        if let Some(file) = ca_file {
            command.env("MODEL_POOL_CA_FILE", file);
        }
        CommandOutput::new(command.output().expect("it runs"))
    }
}

fn admin_client() -> PathBuf {
    support::profile_dir().join("admin-client")
}

#[test]
fn a_private_certificate_is_explained_and_accepted_once_configured() {
    for (lab, what) in [
        (own_certificate(), "its own certificate"),
        (
            own_authority(),
            "an authority that this machine does not know",
        ),
    ] {
        let terminal = ["run", "no-such-model", "Hello"];
        for (program, words) in [
            (admin_client(), &["models"][..]),
            (support::program(), &terminal[..]),
        ] {
            let refused = lab.run(&program, words, "localhost", None);
            assert_eq!(refused.status, 3, "{refused:?}");
            for part in [what, "--ca-file", "MODEL_POOL_CA_FILE"] {
                assert!(refused.stderr.contains(part), "{part}: {refused:?}");
            }
            assert!(!refused.stderr.contains("Is it running"), "{refused:?}");
            let trusted = lab.run(&program, words, "localhost", Some(&lab.ca_file));
            // The pool responds; it does not have the model.
            assert_ne!(trusted.status, 3, "{trusted:?}");
        }
        let file = lab.ca_file.display().to_string();
        let named = ["models", "--ca-file", &file];
        lab.run(&admin_client(), &named, "localhost", None).done();
        let other_name = lab.run(
            &admin_client(),
            &["models"],
            "127.0.0.1",
            Some(&lab.ca_file),
        );
        assert_eq!(other_name.status, 3, "{other_name:?}");
        assert!(
            other_name.stderr.contains("for another name"),
            "{other_name:?}"
        );
    }
}

#[test]
fn a_file_without_certificates_is_refused_with_its_name() {
    let lab = own_authority();
    let key = lab.ca_file.with_file_name("key.pem");
    let refused = lab.run(&admin_client(), &["models"], "localhost", Some(&key));
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.stderr.contains("key.pem"), "{refused:?}");
    assert!(
        refused.stderr.contains("holds no certificate"),
        "{refused:?}"
    );
}
