//! Uploads and downloads of files. The bytes go from and to the disk in pieces, so memory does not depend on their size.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStream, stream};
use reqwest::{Body, Method, header};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::error::ClientError;
use crate::http::Client;
use crate::response::ApiResponse;

const PIECE_BYTES: usize = 256 << 10;
const NAME_MAX: usize = 200;

impl Client {
    /// Uploads a file as the form of `POST v1/files`, with this purpose.
    ///
    /// # Errors
    /// As `call`, and `Usage` if the file cannot be opened.
    pub async fn upload(
        &self,
        path: &str,
        purpose: &str,
        file: &Path,
    ) -> Result<ApiResponse, ClientError> {
        let opened = File::open(file).await.map_err(|error| {
            ClientError::Usage(format!("cannot read {}: {error}", file.display()))
        })?;
        let boundary = boundary();
        let name = form_name(file);
        let head = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\n{purpose}\r\n\
             --{boundary}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             content-type: application/octet-stream\r\n\r\n"
        );
        let tail = format!("\r\n--{boundary}--\r\n");
        let kind = format!("multipart/form-data; boundary={boundary}");
        let request = self
            .request(Method::POST, path, &[])?
            .header(header::CONTENT_TYPE, kind)
            .body(Body::wrap_stream(framed(head, opened, tail)));
        let response = self.send(path, request).await?;
        let text = response.text().await.map_err(|error| self.lost(error))?;
        let path = path.to_owned();
        Ok(ApiResponse { path, text })
    }

    /// Downloads a response into a file, which appears when it is complete. Returns its size.
    ///
    /// # Errors
    /// As `call`, and `Usage` if the file cannot be written.
    pub async fn download(&self, path: &str, to: &Path) -> Result<u64, ClientError> {
        let request = self.request(Method::GET, path, &[])?;
        let mut response = self.send(path, request).await?;
        let unwritten = |error: io::Error| {
            ClientError::Usage(format!("cannot write {}: {error}", to.display()))
        };
        let part = part_of(to);
        let mut file = File::create(&part).await.map_err(unwritten)?;
        let mut bytes = 0;
        while let Some(piece) = response.chunk().await.map_err(|error| self.lost(error))? {
            file.write_all(&piece).await.map_err(unwritten)?;
            bytes += piece.len() as u64;
        }
        file.flush().await.map_err(unwritten)?;
        file.sync_all().await.map_err(unwritten)?;
        tokio::fs::rename(&part, to).await.map_err(unwritten)?;
        Ok(bytes)
    }
}

/// The file in pieces, between the texts before and after it.
fn framed(
    head: String,
    file: File,
    tail: String,
) -> impl TryStream<Ok = Vec<u8>, Error = io::Error> + Send + 'static {
    let pieces = stream::try_unfold(file, |mut file| async move {
        let mut piece = vec![0; PIECE_BYTES];
        let count = file.read(&mut piece).await?;
        piece.truncate(count);
        Ok::<_, io::Error>((count > 0).then_some((piece, file)))
    });
    let text = |text: String| stream::iter([Ok::<_, io::Error>(text.into_bytes())]);
    text(head).chain(pieces).chain(text(tail))
}

/// Random, because the file must not contain it.
fn boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("model-pool-{:016x}{:016x}", random(), random())
}

/// The file's name without characters that end the header.
fn form_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let safe = |letter: char| {
        if letter.is_control() || matches!(letter, '"' | '\\') {
            '_'
        } else {
            letter
        }
    };
    name.chars().take(NAME_MAX).map(safe).collect()
}

/// The name of an incomplete file.
fn part_of(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt;

    #[tokio::test]
    async fn a_file_is_sent_complete_between_its_frames() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.jsonl");
        let content = vec![b'x'; PIECE_BYTES * 2 + 7];
        std::fs::write(&path, &content).expect("written");
        let file = File::open(&path).await.expect("opened");
        let pieces = framed("<".to_owned(), file, ">".to_owned());
        let pieces: Vec<Vec<u8>> = pieces.try_collect().await.expect("read");
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        assert_eq!(pieces.concat(), [&b"<"[..], &content, b">"].concat());
    }

    #[test]
    fn a_name_does_not_end_its_header() {
        assert_eq!(form_name(Path::new("/a/b\"\r\nc.jsonl")), "b___c.jsonl");
        assert_ne!(boundary(), boundary());
        assert_eq!(part_of(Path::new("a.jsonl")), Path::new("a.jsonl.part"));
    }
}
