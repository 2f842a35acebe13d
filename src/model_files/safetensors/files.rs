//! Finds the safetensors files of a model's folder: a single file, or the files listed in an index.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::FileError;
use crate::regular_file::open_regular;

const INDEX_MAX: u64 = 64 << 20;
/// Maximum entries of a folder to inspect.
const FILES_MAX: usize = 10_000;
const INDEX_NAME: &str = "model.safetensors.index.json";
const SINGLE_NAME: &str = "model.safetensors";
/// The first bytes of a Git LFS pointer, left in place of a file that was not fetched.
const POINTER: &[u8] = b"version https://git-lfs";

/// The files that hold a model's weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightFiles {
    One(PathBuf),
    /// Several files, with an index that maps tensors to files.
    Indexed {
        index: PathBuf,
        file_of_tensor: BTreeMap<String, PathBuf>,
    },
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl WeightFiles {
    /// Finds the weights of a folder: `model.safetensors`, else the files in the index, else the only file with another name. If
    /// there is an index, a Git LFS pointer does not count as weights.
    pub fn of_folder(folder: &Path) -> Result<WeightFiles, FileError> {
        let single = folder.join(SINGLE_NAME);
        let index = folder.join(INDEX_NAME);
        let is_indexed = index.exists();
        if single.exists() && !(is_indexed && is_pointer(&single)) {
            return Ok(WeightFiles::One(single));
        }
        if is_indexed {
            return indexed(folder, index);
        }
        match <[PathBuf; 1]>::try_from(safetensors_in(folder)) {
            Ok([only]) => Ok(WeightFiles::One(only)),
            Err(_) => Err(no_weights(folder)),
        }
    }

    /// Each file once, in order.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            WeightFiles::One(path) => vec![path],
            WeightFiles::Indexed { file_of_tensor, .. } => {
                let files: BTreeSet<&PathBuf> = file_of_tensor.values().collect();
                files.into_iter().map(PathBuf::as_path).collect()
            }
        }
    }
}

fn is_pointer(path: &Path) -> bool {
    let mut begin = [0; POINTER.len()];
    let read = open_regular(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == POINTER
}

/// Reads the index and checks that its files exist in the same folder.
fn indexed(folder: &Path, index: PathBuf) -> Result<WeightFiles, FileError> {
    let broken = |path: &Path, problem: String| FileError::Broken {
        path: path.to_owned(),
        problem,
    };
    let text = read_text(&index, INDEX_MAX)?;
    let read: Index = reading::json(&text).map_err(|error| broken(&index, error.to_string()))?;
    let mut file_of_tensor = BTreeMap::new();
    for (tensor, name) in read.weight_map {
        if name.contains(['/', '\\']) || !name.ends_with(".safetensors") {
            return Err(broken(
                &index,
                format!("it names `{name}`, which is not a safetensors file in the same folder"),
            ));
        }
        file_of_tensor.insert(tensor, folder.join(name));
    }
    if file_of_tensor.is_empty() {
        return Err(broken(&index, "its weight_map is empty".to_owned()));
    }
    let files = WeightFiles::Indexed {
        index,
        file_of_tensor,
    };
    let paths = files.paths();
    let missing: Vec<&&Path> = paths.iter().filter(|path| !path.exists()).collect();
    if let Some(first) = missing.first() {
        return Err(broken(
            first,
            format!(
                "this file is missing, with {} of the {} that {INDEX_NAME} names; download the model again",
                missing.len(),
                paths.len()
            ),
        ));
    }
    Ok(files)
}

/// The safetensors files of a folder, sorted.
pub(super) fn safetensors_in(folder: &Path) -> Vec<PathBuf> {
    let listing = std::fs::read_dir(folder).into_iter().flatten();
    let files = listing
        .take(FILES_MAX)
        .filter_map(|file| Some(file.ok()?.path()));
    let is_weights = |file: &PathBuf| {
        file.extension()
            .is_some_and(|extension| extension == "safetensors")
    };
    let mut files: Vec<PathBuf> = files.filter(is_weights).collect();
    files.sort();
    files
}

/// Returns true if a folder has files that [`WeightFiles::of_folder`] finds.
pub fn has_weights(folder: &Path) -> bool {
    let has = |name: &&str| folder.join(name).exists();
    [INDEX_NAME, SINGLE_NAME].iter().any(has) || safetensors_in(folder).len() == 1
}

/// Weight files of older models, including the first release of GPT-J.
const PICKLES: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

pub fn no_weights(folder: &Path) -> FileError {
    let pickle = PICKLES.iter().find(|name| folder.join(name).exists());
    let hint = pickle.map_or_else(String::new, |name| {
        format!(
            "; {name} is a pickle, which may run code and is not read: load the model with transformers and write it again with save_pretrained, which makes safetensors"
        )
    });
    FileError::Broken {
        path: folder.to_owned(),
        problem: format!("the folder holds neither {SINGLE_NAME} nor {INDEX_NAME}{hint}"),
    }
}

/// Reads a text file of at most `limit` bytes.
pub fn read_text(path: &Path, limit: u64) -> Result<String, FileError> {
    let unreadable = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let file = open_regular(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(limit + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > limit {
        return Err(FileError::Broken {
            path: path.to_owned(),
            problem: format!("it is larger than the limit of {limit} bytes"),
        });
    }
    Ok(text)
}
