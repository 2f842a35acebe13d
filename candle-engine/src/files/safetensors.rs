//! Opens the safetensors files of a folder, one or several with an index, as a table of tensors. `model_files` reads the headers
//! and the index.

use super::folder::REMEDY;
use super::legacy_names::LegacyNames;
use super::mapped_file::MappedFile;
use super::names;
use super::table::{FileEncoding, Table, TensorLocation};
use crate::error::EngineError;
use crate::stored_tensor::Encoding;
use model_files::safetensors::{Header, TensorEntry, WeightFiles};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maps the files of a folder and checks their headers.
///
/// # Errors
/// If files are missing or corrupt, or the index contradicts them.
pub(super) fn table(folder: &Path) -> Result<Table, EngineError> {
    let files = WeightFiles::of_folder(folder)?;
    let mut table = Table::default();
    for path in files.paths() {
        add(&mut table, path)?;
    }
    match files {
        WeightFiles::One(path) => table.described_by = path,
        WeightFiles::Indexed {
            index,
            file_of_tensor,
        } => {
            check_index(&table, &index, &file_of_tensor)?;
            table
                .places
                .retain(|name, _| file_of_tensor.contains_key(name.as_str()));
            table.described_by = index;
        }
    }
    Ok(table)
}

/// Checks that each tensor is in the file that the index names for it.
fn check_index(
    table: &Table,
    index: &Path,
    file_of_tensor: &BTreeMap<String, PathBuf>,
) -> Result<(), EngineError> {
    for (tensor, file) in file_of_tensor {
        let place = table.places.get(tensor);
        if place.is_none_or(|place| table.files[place.file].path != *file) {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            return Err(EngineError::model(
                index,
                format!("it places the tensor {tensor} in {name}, which does not contain it"),
                REMEDY,
            ));
        }
    }
    Ok(())
}

fn add(table: &mut Table, path: &Path) -> Result<(), EngineError> {
    let header = Header::read(path)?;
    let file = MappedFile::open(path)?;
    let file_bytes = file.as_ref().len();
    let index = table.files.len();
    table.files.push(Arc::new(file));
    for tensor in header.tensors {
        let wrong = |problem| EngineError::model(path, problem, REMEDY);
        let place = place(&tensor, index, file_bytes).ok_or_else(|| {
            wrong(format!(
                "it was truncated while it was opened: {} is cut off",
                tensor.name
            ))
        })?;
        let name = tensor.name;
        if table.places.insert(name.clone(), place).is_some() {
            return Err(wrong(format!("the tensor {name} is in another file, too")));
        }
    }
    Ok(())
}

/// Locates a tensor in the file with index `file` of the table; `None` if the file no longer has its bytes.
fn place(tensor: &TensorEntry, file: usize, file_bytes: usize) -> Option<TensorLocation> {
    let shape = tensor.shape.iter().map(|size| usize::try_from(*size).ok());
    let (begin, end) = (
        usize::try_from(tensor.begin).ok()?,
        usize::try_from(tensor.end).ok()?,
    );
    (end <= file_bytes).then_some(TensorLocation {
        file,
        written: match tensor.dtype.as_str() {
            "F32" => FileEncoding::Plain(Encoding::F32),
            "F16" => FileEncoding::Plain(Encoding::F16),
            "BF16" => FileEncoding::Plain(Encoding::Bf16),
            other => FileEncoding::Foreign(other.to_owned()),
        },
        shape: shape.collect::<Option<_>>()?,
        range: begin..end,
        transposed: false,
    })
}

/// Renames the tensors of a decoder as [`super::expected`] lists them. Returns true if they were saved without the head, in which
/// case their names omit `model.`.
pub(super) fn name_as_decoder(table: &mut Table, architecture: &str) -> bool {
    if let Some(own) = LegacyNames::new(architecture) {
        return own.rename(table);
    }
    let bare = !table.places.keys().any(|name| name.starts_with("model."))
        && table.places.contains_key("embed_tokens.weight");
    let renamed = std::mem::take(&mut table.places)
        .into_iter()
        .map(|(name, place)| (names::decoder_name(&name, bare), place))
        .collect();
    table.places = renamed;
    names::unstack_experts(table);
    bare
}
