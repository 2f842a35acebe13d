//! Lists the files of complete local weights with their digests, from the record of a fetch, which enables another machine to fetch
//! the same files. Reads names and sizes, but no file contents.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::source::{Fetch, Manifest, Origin, short_digest};

/// A longer list is not a model.
const FILES_MAX: usize = 20_000;
/// Weight formats of which a model uses only some files of a repository.
const CHOSEN_FORMS: [&str; 6] = [".gguf", ".bin", ".pt", ".pth", ".ckpt", ".pkl"];

/// All files of a model at one revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsListing {
    /// The model's folder in the cache, such as `models--org--name`.
    pub name: String,
    /// The hub's commit, or the bucket's identifier of its state.
    pub commit: String,
    pub files: Vec<ListedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFile {
    /// The path in the model's folder.
    pub path: String,
    pub bytes: u64,
    /// The name of the content in the cache.
    pub blob: String,
    /// `sha256:…`, `git:…` or `md5:…`; `None` if other copies cannot be verified.
    pub digest: Option<String>,
}

impl WeightsListing {
    /// A name for these weights that is equal on every machine: the model and its commit. A digest of the contents is appended if
    /// those do not determine the files, to distinguish machines with different quantizations.
    pub fn id(&self) -> String {
        let state = format!("{}@{}", self.name, self.commit);
        // A bucket without commits reports zeros in every state.
        let is_unnamed = self.commit.bytes().all(|byte| byte == b'0');
        if !is_unnamed && !self.files.iter().any(|file| is_chosen(&file.path)) {
            return state;
        }
        // Excludes the paths: the same file is in a folder or at the top level, depending on whether it was chosen by name or by
        // quantization.
        let mut contents: Vec<&str> = self.files.iter().map(|file| file.blob.as_str()).collect();
        contents.sort_unstable();
        format!("{state}+{}", short_digest(&contents.join(" ")))
    }

    pub fn bytes(&self) -> u64 {
        let sizes = self.files.iter().map(|file| file.bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// Returns true if both list the same contents in the same order.
    pub fn is_same(&self, other: &WeightsListing) -> bool {
        let same = |(a, b): (&ListedFile, &ListedFile)| {
            (&a.path, a.bytes, &a.blob) == (&b.path, b.bytes, &b.blob)
        };
        self.name == other.name
            && self.files.len() == other.files.len()
            && self.files.iter().zip(&other.files).all(same)
    }

    /// Returns true if the folder has every file with its size. Blocking.
    pub fn is_in(&self, folder: &Path) -> bool {
        let right = |path: &Path, bytes: u64| {
            std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == bytes)
        };
        let mut files = self.files.iter();
        !self.files.is_empty() && files.all(|file| right(&folder.join(&file.path), file.bytes))
    }
}

impl Fetch {
    /// The local files, if the model is complete. Blocking.
    pub fn listing(&self) -> Option<WeightsListing> {
        let manifest = self.manifest().filter(|_| self.is_here())?;
        let is_of_hub = matches!(self.origin, Origin::Hub { .. });
        let listing = listing(&self.folder(), &manifest, is_of_hub)?;
        let own = self.root().file_name()?.to_string_lossy().into_owned();
        (listing.name == own).then_some(listing)
    }

    /// The same weights at the commit of the listing, for a machine with these folders.
    pub fn moved(self, cache: &Path, notes: &Path, listing: &WeightsListing) -> Fetch {
        let is_commit = is_hex(&listing.commit, &[40]);
        let origin = match self.origin {
            // A branch may have advanced since.
            Origin::Hub { .. } if is_commit => Origin::Hub {
                revision: listing.commit.clone(),
            },
            origin => origin,
        };
        Fetch {
            origin,
            cache: cache.to_owned(),
            notes: notes.to_owned(),
            ..self
        }
    }
}

/// The ids of complete models below a folder of records (`Fetch::notes`), sorted. Blocking.
pub fn complete_below(notes: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(notes).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let manifests = paths.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    let mut found: Vec<String> = manifests
        .filter_map(|path| {
            let manifest: Manifest = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
            let folder = path.with_extension("");
            let listing = listing(&folder, &manifest, true).filter(|_| !manifest.is_doubted)?;
            listing.is_in(&folder).then(|| listing.id())
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The manifest's files with the blobs that they link to. `None` if a file is missing or outside a cache.
fn listing(folder: &Path, manifest: &Manifest, is_of_hub: bool) -> Option<WeightsListing> {
    if manifest.files.is_empty() || manifest.files.len() > FILES_MAX {
        return None;
    }
    let mut name = None;
    let mut files = Vec::with_capacity(manifest.files.len());
    for file in &manifest.files {
        let content = std::fs::canonicalize(folder.join(&file.path)).ok()?;
        let blob = content.file_name()?.to_str()?.to_owned();
        let blobs = content
            .parent()
            .filter(|folder| folder.ends_with("blobs"))?;
        let model = blobs.parent()?.file_name()?.to_str()?.to_owned();
        if name.get_or_insert_with(|| model.clone()) != &model {
            return None;
        }
        // The hub names contents by their digest.
        let of_name = || match blob.len() {
            64 if is_of_hub && is_hex(&blob, &[64]) => Some(format!("sha256:{blob}")),
            40 if is_of_hub && is_hex(&blob, &[40]) => Some(format!("git:{blob}")),
            _ => None,
        };
        files.push(ListedFile {
            path: file.path.clone(),
            bytes: file.bytes,
            digest: file.digest.clone().or_else(of_name),
            blob,
        });
    }
    Some(WeightsListing {
        name: name?,
        commit: manifest.commit.clone(),
        files,
    })
}

/// Returns true if this file is optional for a model of the repository.
fn is_chosen(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default().to_lowercase();
    name.starts_with("consolidated") || CHOSEN_FORMS.iter().any(|form| name.ends_with(form))
}

fn is_hex(text: &str, lengths: &[usize]) -> bool {
    lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::source::{GgufFiles, ManifestFile};
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn fetch(folder: &Path) -> Fetch {
        Fetch {
            origin: Origin::Hub {
                revision: "main".to_owned(),
            },
            id: "lab/small".to_owned(),
            cache: folder.join("cache"),
            notes: folder.join("notes"),
            extra_files: Vec::new(),
            extra_by: None,
            pickles: false,
            consolidated: false,
            gguf: GgufFiles::None,
            env: BTreeMap::new(),
        }
    }

    /// Files as a fetch leaves them, with one file.
    fn fetched(folder: &Path) -> Fetch {
        let fetch = fetch(folder);
        let (blob, set) = ("ab".repeat(32), fetch.notes.join("sets/one"));
        std::fs::create_dir_all(fetch.root().join("blobs")).expect("a folder");
        std::fs::create_dir_all(&set).expect("a folder");
        let content = fetch.root().join("blobs").join(&blob);
        std::fs::write(&content, "weights").expect("written");
        symlink(&content, set.join("model.safetensors")).expect("a link");
        symlink(&set, fetch.folder()).expect("a link");
        let manifest = Manifest {
            origin: fetch.describe(),
            fingerprint: fetch.fingerprint(),
            commit: COMMIT.to_owned(),
            files: vec![ManifestFile {
                path: "model.safetensors".to_owned(),
                bytes: 7,
                digest: None,
            }],
            outside: Vec::new(),
            is_adopted: false,
            is_doubted: false,
        };
        let text = serde_json::to_vec(&manifest).expect("JSON");
        std::fs::write(fetch.manifest_path(), text).expect("written");
        fetch
    }

    #[test]
    fn a_complete_download_is_listed_with_the_digests_of_its_blobs() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let fetch = fetched(&root);
        let listing = fetch.listing().expect("it is here");
        assert_eq!(listing.id(), format!("models--lab--small@{COMMIT}"));
        let digest = format!("sha256:{}", "ab".repeat(32));
        assert_eq!(listing.files[0].digest.as_deref(), Some(digest.as_str()));
        assert_eq!((listing.bytes(), listing.files.len()), (7, 1));
        assert!(listing.is_in(&fetch.folder()));
        assert_eq!(complete_below(&fetch.notes), [listing.id()]);
    }

    /// Builds a listing from paths and names of contents.
    fn listing_at(commit: &str, files: &[(&str, &str)]) -> WeightsListing {
        let files = files.iter().map(|(path, blob)| ListedFile {
            path: (*path).to_owned(),
            bytes: 7,
            blob: (*blob).to_owned(),
            digest: None,
        });
        WeightsListing {
            name: "models--lab--small".to_owned(),
            commit: commit.to_owned(),
            files: files.collect(),
        }
    }

    fn id_of(files: &[(&str, &str)]) -> String {
        listing_at(COMMIT, files).id()
    }

    #[test]
    fn quantizations_of_one_repository_have_distinct_ids() {
        let config = ("config.json", "cc");
        let four = id_of(&[config, ("m-Q4_K_M.gguf", "a4")]);
        let eight = id_of(&[config, ("m-Q8_0.gguf", "a8")]);
        assert!(four.starts_with(&format!("models--lab--small@{COMMIT}+")));
        assert_ne!(four, eight);
        // In folders of the repository, one name may occur several times.
        let (half, brain) = (("m.gguf", "f1"), ("m.gguf", "bf"));
        assert_ne!(id_of(&[config, half]), id_of(&[config, brain]));
    }

    #[test]
    fn equal_contents_have_one_id_regardless_of_the_selection() {
        let parts = [("m-1-of-2.gguf", "b1"), ("m-2-of-2.gguf", "b2")];
        let in_folder = [("Q8_0/m-2-of-2.gguf", "b2"), ("Q8_0/m-1-of-2.gguf", "b1")];
        assert_eq!(id_of(&parts), id_of(&in_folder));
        assert_ne!(id_of(&parts), id_of(&parts[..1]));
    }

    #[test]
    fn a_commit_that_identifies_its_files_needs_no_digest() {
        let config = ("config.json", "cc");
        let plain = id_of(&[config, ("model.safetensors", "ab")]);
        assert_eq!(plain, format!("models--lab--small@{COMMIT}"));
        for more in ["consolidated.safetensors", "vae/diffusion.bin"] {
            let other = id_of(&[config, ("model.safetensors", "ab"), (more, "cd")]);
            assert_ne!(other, plain, "{more}");
        }
        let of_bucket = |blob| listing_at(&"0".repeat(40), &[("model.safetensors", blob)]).id();
        assert_ne!(of_bucket("ab"), of_bucket("cd"));
        assert_eq!(of_bucket("ab"), of_bucket("ab"));
    }

    #[test]
    fn a_truncated_download_is_not_listed() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let fetch = fetched(&root);
        let content = fetch.root().join("blobs").join("ab".repeat(32));
        std::fs::write(content, "weight").expect("written");
        assert_eq!(fetch.listing(), None);
        assert!(complete_below(&fetch.notes).is_empty());
    }

    #[test]
    fn a_listing_moved_to_another_machine_keeps_the_commit_and_uses_local_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let fetch = fetched(&root);
        let listing = fetch.listing().expect("it is here");
        let (cache, notes) = (Path::new("/c"), Path::new("/n"));
        let moved = fetch.clone().moved(cache, notes, &listing);
        assert_eq!(moved.root(), Path::new("/c/models--lab--small"));
        assert!(moved.folder().starts_with("/n"));
        let expected = Origin::Hub {
            revision: COMMIT.to_owned(),
        };
        assert_eq!(moved.origin, expected);
        let text = serde_json::to_string(&moved).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Fetch>(&text).expect("a fetch"),
            moved
        );
    }
}
