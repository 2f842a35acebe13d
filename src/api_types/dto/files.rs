//! Files of a key, in OpenAI's form.

use serde::Serialize;
use utoipa::ToSchema;

/// An uploaded file, or the results of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct FileObject {
    #[schema(example = "file-0d4fa7")]
    pub id: String,
    /// `file`.
    #[schema(example = "file")]
    pub object: &'static str,
    #[schema(example = 120_000)]
    pub bytes: u64,
    /// Unix seconds.
    #[schema(example = 1_764_000_000_u64)]
    pub created_at: u64,
    /// Unix seconds.
    #[schema(example = 1_766_592_000_u64)]
    pub expires_at: Option<u64>,
    #[schema(example = "prompts.jsonl")]
    pub filename: String,
    /// `batch` or `batch_output`.
    #[schema(example = "batch")]
    pub purpose: String,
    /// `processed`: every line has been checked.
    #[schema(example = "processed")]
    pub status: &'static str,
}

/// A page of files.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct FileList {
    /// `list`.
    #[schema(example = "list")]
    pub object: &'static str,
    pub data: Vec<FileObject>,
    pub first_id: Option<String>,
    /// Value of `after` for the next page.
    pub last_id: Option<String>,
    pub has_more: bool,
}

/// A deleted file.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DeletedFile {
    #[schema(example = "file-0d4fa7")]
    pub id: String,
    /// `file`.
    #[schema(example = "file")]
    pub object: &'static str,
    pub deleted: bool,
}

/// The form of an upload.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the form for the document")]
pub struct UploadForm {
    /// The file. Its lines are requests: `{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": …}}`.
    /// May be compressed with gzip.
    #[schema(format = Binary, content_media_type = "application/octet-stream")]
    file: String,
    /// `batch`.
    #[schema(example = "batch")]
    purpose: String,
    /// The anchor of the expiry: `created_at`.
    #[schema(rename = "expires_after[anchor]", example = "created_at")]
    expires_after_anchor: Option<String>,
    /// Seconds until the file expires, 3600 to 2592000.
    #[schema(rename = "expires_after[seconds]", minimum = 3600, maximum = 2_592_000)]
    expires_after_seconds: Option<u64>,
}
