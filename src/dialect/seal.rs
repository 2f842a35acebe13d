//! Seals a model's reasoning for its way through the client and back. Only this pool can read it, and only for the API key it was
//! sealed for.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use pool::KeyId;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;

const KEY_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
/// Version prefix of the sealed format.
const SEALED: &str = "mp1.";
const SIGNED: &str = "mps1.";

/// The reason that no key is available.
#[derive(Debug, Error)]
pub enum SealError {
    #[error("the key for sealed reasoning ({file}) cannot be {what}: {source}")]
    File {
        file: String,
        what: &'static str,
        source: std::io::Error,
    },
    #[error(
        "{file} does not contain a base64 key of {KEY_BYTES} bytes; remove it to have a new key created (models then lose the reasoning of running conversations)"
    )]
    Key { file: String },
    #[error("the system provides no random bytes for a new key")]
    Random,
}

/// The pool's secret key.
pub struct Seal(hmac::Key);

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(…)")
    }
}

impl Seal {
    /// Reads the key from the file. If the file does not exist, creates a key and writes it with mode 0600.
    pub fn open(path: &Path) -> Result<Seal, SealError> {
        let file = || path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let key = BASE64.decode(text.trim()).ok();
                let key = key.and_then(|key| <[u8; KEY_BYTES]>::try_from(key).ok());
                key.map(|key| Seal::new(&key))
                    .ok_or_else(|| SealError::Key { file: file() })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let mut key = [0; KEY_BYTES];
                let random = SystemRandom::new().fill(&mut key);
                random.map_err(|_| SealError::Random)?;
                write_private(path, &BASE64.encode(key)).map_err(|source| SealError::File {
                    file: file(),
                    what: "written",
                    source,
                })?;
                Ok(Seal::new(&key))
            }
            Err(source) => Err(SealError::File {
                file: file(),
                what: "read",
                source,
            }),
        }
    }

    pub fn new(key: &[u8; KEY_BYTES]) -> Seal {
        Seal(hmac::Key::new(HMAC_SHA256, key))
    }
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

/// Seals and signs for one key holder.
#[derive(Clone, Debug)]
pub struct Sealer {
    seal: Arc<Seal>,
    holder: KeyId,
}

impl Sealer {
    pub fn new(seal: Arc<Seal>, holder: KeyId) -> Sealer {
        Sealer { seal, holder }
    }

    /// Encrypts the text. Returns `None` without a source of randomness, which every running system has.
    pub fn seal(&self, text: &str) -> Option<String> {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new().fill(&mut salt).ok()?;
        let mut bytes = text.as_bytes().to_vec();
        let key = self.key_of(&salt)?;
        key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut bytes)
            .ok()?;
        let salted = [salt.as_slice(), &bytes].concat();
        Some(format!("{SEALED}{}", BASE64.encode(salted)))
    }

    /// Decrypts a text sealed for this holder. Returns `None` if it is from another pool, for another holder, or modified.
    pub fn open(&self, sealed: &str) -> Option<String> {
        let salted = BASE64.decode(sealed.strip_prefix(SEALED)?).ok()?;
        let (salt, sealed) = salted.split_at_checked(SALT_BYTES)?;
        let mut bytes = sealed.to_vec();
        let key = self.key_of(salt)?;
        let text = key.open_in_place(nonce(), Aad::empty(), &mut bytes).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }

    /// Signs a text that is sent in readable form.
    pub fn sign(&self, text: &str) -> String {
        let tag = hmac::sign(&self.seal.0, &self.signed(text));
        format!("{SIGNED}{}", BASE64.encode(tag))
    }

    pub(crate) fn has_signed(&self, text: &str, signature: &str) -> bool {
        let tag = signature.strip_prefix(SIGNED);
        let tag = tag.and_then(|tag| BASE64.decode(tag).ok());
        tag.is_some_and(|tag| hmac::verify(&self.seal.0, &self.signed(text), &tag).is_ok())
    }

    fn signed(&self, text: &str) -> Vec<u8> {
        [
            b"signed\0".as_slice(),
            &self.holder_bytes(),
            text.as_bytes(),
        ]
        .concat()
    }

    fn holder_bytes(&self) -> Vec<u8> {
        let mut bytes = self.holder.0.to_string().into_bytes();
        bytes.push(0);
        bytes
    }

    /// Derives a separate key for each text, which permits a constant nonce.
    fn key_of(&self, salt: &[u8]) -> Option<LessSafeKey> {
        let material = [b"sealed\0".as_slice(), &self.holder_bytes(), salt].concat();
        let key = hmac::sign(&self.seal.0, &material);
        let key = UnboundKey::new(&AES_256_GCM, key.as_ref()).ok()?;
        Some(LessSafeKey::new(key))
    }
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(key: u8, holder: u64) -> Sealer {
        Sealer::new(Arc::new(Seal::new(&[key; KEY_BYTES])), KeyId(holder))
    }

    #[test]
    fn sealed_text_opens_only_in_the_same_pool_and_for_the_same_key() {
        let sealed = sealer(1, 7).seal("I think…").unwrap();
        assert!(!sealed.contains("think"));
        assert_eq!(sealer(1, 7).open(&sealed).as_deref(), Some("I think…"));
        assert_eq!(sealer(1, 8).open(&sealed), None, "another key's");
        assert_eq!(sealer(2, 7).open(&sealed), None, "another pool's");
        assert_ne!(sealer(1, 7).seal("I think…"), Some(sealed.clone()));
        for place in 0..sealed.len() {
            let mut forged = sealed.clone().into_bytes();
            forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            // The last character contains unused bits.
            let opened = sealer(1, 7).open(&forged);
            assert!(opened.is_none() || place + 1 == sealed.len(), "{place}");
        }
        for other in ["", "mp1.", "mp1.AAAA", "gAAAAAB", "mp1.é"] {
            assert_eq!(sealer(1, 7).open(other), None, "{other}");
        }
    }

    #[test]
    fn a_signature_is_valid_only_for_its_text_pool_and_key() {
        let signature = sealer(1, 7).sign("I think…");
        assert!(sealer(1, 7).has_signed("I think…", &signature));
        assert!(!sealer(1, 7).has_signed("I thought…", &signature));
        assert!(!sealer(1, 8).has_signed("I think…", &signature));
        assert!(!sealer(2, 7).has_signed("I think…", &signature));
        assert!(!sealer(1, 7).has_signed("I think…", "EqQBCkYIARgC"));
    }

    #[test]
    fn the_reasoning_key_is_created_once_with_a_private_mode() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/reasoning.key");
        let first = Sealer::new(Arc::new(Seal::open(&path).unwrap()), KeyId(1));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let sealed = first.seal("x").unwrap();
        let again = Sealer::new(Arc::new(Seal::open(&path).unwrap()), KeyId(1));
        assert_eq!(again.open(&sealed).as_deref(), Some("x"));
        std::fs::write(&path, "short").unwrap();
        let error = Seal::open(&path).unwrap_err().to_string();
        assert!(
            error.contains("reasoning.key") && error.contains("remove it"),
            "{error}"
        );
    }
}
