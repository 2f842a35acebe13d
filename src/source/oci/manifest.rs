//! Manifests of models in OCI registries: the layers that are files of the model, and their names.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::part::{Check, Part};

pub(super) const MANIFEST_TYPES: [&str; 2] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];
pub(super) const INDEX_TYPES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
/// The annotations with the path of a file: ModelPack's, its earlier name, and that of `oras`.
const PATHS: [&str; 3] = [
    "org.cncf.model.filepath",
    "org.cnai.model.filepath",
    "org.opencontainers.image.title",
];
/// Beginnings of the types of Docker's layers, and the names of their files.
const UNNAMED: [(&str, &str); 2] = [
    ("application/vnd.docker.ai.gguf", "model"),
    ("application/vnd.docker.ai.mmproj", "mmproj"),
];
const LAYERS_MAX: usize = 20_000;

#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    #[error("its manifest cannot be read: {0}")]
    Malformed(String),
    #[error("it has several manifests; name one by its digest: {0}")]
    SeveralManifests(String),
    #[error("its index refers to another index")]
    NestedIndex,
    #[error("the layer {0} is an archive, which is not unpacked; push the files as raw layers")]
    Archive(String),
    #[error("the layer {0} has no sha256 digest")]
    Digest(String),
    #[error("it has more than {LAYERS_MAX} layers")]
    TooManyLayers,
    #[error("the sizes of its layers add up to more than 2^63 bytes")]
    TooLarge,
    #[error("it has no layer with a file of a model")]
    NoFiles,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
pub(super) struct Manifest {
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

/// Returns true if a body without a type is an index.
pub(super) fn is_index(body: &[u8]) -> bool {
    serde_json::from_slice::<Index>(body).is_ok()
}

/// The digest of the only manifest of an index.
pub(super) fn only_of_index(body: &[u8]) -> Result<String, ManifestError> {
    let malformed = |error: serde_json::Error| ManifestError::Malformed(error.to_string());
    let index: Index = serde_json::from_slice(body).map_err(malformed)?;
    match index.manifests.as_slice() {
        [] => Err(ManifestError::NoFiles),
        [only] => digest_of(only),
        several => {
            let shown = several.iter().take(8);
            let digests: Vec<String> = shown.map(|manifest| cut(&manifest.digest)).collect();
            Err(ManifestError::SeveralManifests(digests.join(", ")))
        }
    }
}

fn digest_of(descriptor: &Descriptor) -> Result<String, ManifestError> {
    match Check::parse(&descriptor.digest) {
        Some(Check::Sha256(digest)) => Ok(digest),
        _ => Err(ManifestError::Digest(cut(&descriptor.digest))),
    }
}

/// The beginning of a text of the registry, for a message.
fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}

impl Manifest {
    pub fn parse(body: &[u8]) -> Result<Manifest, ManifestError> {
        let malformed = |error: serde_json::Error| ManifestError::Malformed(error.to_string());
        serde_json::from_slice(body).map_err(malformed)
    }

    /// The files. Layers without a name that are not weights, such as licences, are left out.
    pub fn parts(self) -> Result<Vec<Part>, ManifestError> {
        if self.layers.len() > LAYERS_MAX {
            return Err(ManifestError::TooManyLayers);
        }
        let mut sizes = self.layers.iter().map(|layer| layer.size);
        let total = sizes.try_fold(0_u64, |total, size| total.checked_add(size));
        if total.is_none_or(|total| total > i64::MAX as u64) {
            return Err(ManifestError::TooLarge);
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut unnamed: BTreeMap<&str, Vec<(String, u64)>> = BTreeMap::new();
        for layer in &self.layers {
            let digest = digest_of(layer)?;
            let annotations = layer.annotations.as_ref();
            let path = annotations
                .and_then(|all| PATHS.iter().find_map(|name| all.get(*name)))
                .cloned();
            let is_archive = [".tar", "+tar", ".tar+gzip", "+gzip", "+zstd"]
                .iter()
                .any(|ending| layer.media_type.ends_with(ending));
            let named = UNNAMED
                .iter()
                .find(|(kind, _)| layer.media_type.starts_with(kind));
            match (path, named) {
                (Some(path), _) if is_archive => return Err(ManifestError::Archive(cut(&path))),
                (Some(path), _) => parts.push(part(path, digest, layer.size)),
                (None, Some((_, name))) => {
                    unnamed.entry(name).or_default().push((digest, layer.size));
                }
                (None, None) => {}
            }
        }
        for (name, files) in unnamed {
            let count = files.len();
            for (nth, (digest, size)) in files.into_iter().enumerate() {
                // The form of llama.cpp's parts, whose loader reads the others by their names.
                let path = match count {
                    1 => format!("{name}.gguf"),
                    _ => format!("{name}-{:05}-of-{count:05}.gguf", nth + 1),
                };
                parts.push(part(path, digest, size));
            }
        }
        if parts.is_empty() {
            return Err(ManifestError::NoFiles);
        }
        Ok(parts)
    }
}

fn part(path: String, digest: String, size: u64) -> Part {
    Part {
        path,
        size,
        blob: digest.clone(),
        check: Check::Sha256(digest),
        counted: 0,
        etag: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn layer(kind: &str, digit: char, title: Option<(&str, &str)>) -> Value {
        let mut layer = json!({"mediaType": kind, "size": 5,
            "digest": format!("sha256:{}", digit.to_string().repeat(64))});
        if let Some((name, value)) = title {
            layer["annotations"] = json!({name: value});
        }
        layer
    }

    fn parts(layers: Value) -> Result<Vec<String>, ManifestError> {
        let body = json!({"schemaVersion": 2, "layers": layers}).to_string();
        let parts = Manifest::parse(body.as_bytes())?.parts()?;
        Ok(parts.into_iter().map(|part| part.path).collect())
    }

    #[test]
    fn files_are_named_by_the_annotations_of_all_three_tools() {
        let found = parts(json!([
            layer(
                "application/vnd.cncf.model.weight.v1.raw",
                '1',
                Some(("org.cncf.model.filepath", "model.safetensors"))
            ),
            layer(
                "application/vnd.cnai.model.weight.config.v1.raw",
                '2',
                Some(("org.cnai.model.filepath", "config.json"))
            ),
            layer(
                "application/octet-stream",
                '3',
                Some(("org.opencontainers.image.title", "tokenizer.json"))
            ),
            layer("application/vnd.docker.ai.license", '4', None),
        ]));
        assert_eq!(
            found.unwrap(),
            ["model.safetensors", "config.json", "tokenizer.json"]
        );
    }

    #[test]
    fn layers_of_docker_get_the_names_of_gguf_files() {
        let gguf = "application/vnd.docker.ai.gguf.v3";
        let one = parts(json!([
            layer(gguf, '1', None),
            layer("application/vnd.docker.ai.mmproj", '2', None)
        ]));
        assert_eq!(one.unwrap(), ["mmproj.gguf", "model.gguf"]);
        let two = parts(json!([layer(gguf, '1', None), layer(gguf, '2', None)]));
        assert_eq!(
            two.unwrap(),
            ["model-00001-of-00002.gguf", "model-00002-of-00002.gguf"]
        );
    }

    #[test]
    fn sizes_that_overflow_and_texts_of_any_length_are_refused_in_short_messages() {
        let digest = format!("sha256:{}", "1".repeat(64));
        let path = json!({"org.cncf.model.filepath": "weights"});
        let layer =
            json!({"mediaType": "a", "digest": digest, "size": u64::MAX, "annotations": path});
        for layers in [json!([layer]), json!([layer, layer])] {
            assert!(matches!(parts(layers), Err(ManifestError::TooLarge)));
        }
        let long = "x".repeat(1 << 20);
        let entry = json!({"digest": long, "size": 1});
        let index = json!({"manifests": [entry, entry]}).to_string();
        let error = only_of_index(index.as_bytes()).expect_err("several");
        assert!(error.to_string().len() < 2_000);
        let none = only_of_index(br#"{"manifests": []}"#);
        assert!(matches!(none, Err(ManifestError::NoFiles)));
    }

    #[test]
    fn unusable_manifests_are_refused_with_the_reason() {
        let title = Some(("org.cncf.model.filepath", "weights"));
        let archive = parts(json!([layer(
            "application/vnd.cncf.model.weight.v1.tar",
            '1',
            title
        )]));
        assert!(matches!(archive, Err(ManifestError::Archive(_))));
        assert!(matches!(parts(json!([])), Err(ManifestError::NoFiles)));
        let mut wrong = layer("application/octet-stream", '1', title);
        wrong["digest"] = json!("sha512:00");
        assert!(matches!(
            parts(json!([wrong])),
            Err(ManifestError::Digest(_))
        ));
        assert!(matches!(
            Manifest::parse(b"{}"),
            Err(ManifestError::Malformed(_))
        ));
        let one = layer("application/vnd.oci.image.manifest.v1+json", 'a', None);
        let index = |manifests: Value| json!({"manifests": manifests}).to_string();
        let only = only_of_index(index(json!([one])).as_bytes());
        assert_eq!(only.unwrap(), "a".repeat(64));
        let several = only_of_index(index(json!([one, one])).as_bytes());
        assert!(matches!(several, Err(ManifestError::SeveralManifests(_))));
        assert!(is_index(index(json!([])).as_bytes()) && !is_index(b"{\"layers\":[]}"));
    }
}
