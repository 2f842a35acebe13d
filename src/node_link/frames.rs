//! Frames: a big-endian length of four bytes, followed by that many bytes of JSON.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Maximum length of a frame. A launch takes some KiB, and a list of a thousand engines some hundred KiB.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes; at most {FRAME_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// Shows only the position, since the text may contain secrets.
    #[error("a frame cannot be read: {0:?} at line {1} column {2}")]
    NotRead(serde_json::error::Category, usize, usize),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads the next frame; `None` at the end of the connection. Memory grows with the data received, not with the announced length.
/// Not cancel safe.
///
/// # Errors
/// The connection breaks, or the data is not a frame.
pub async fn read_frame<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> Result<Option<T>, FrameError> {
    let length = match from.read_u32().await {
        Ok(length) => length as usize,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong(length));
    }
    let mut bytes = Vec::new();
    let read = from.take(length as u64).read_to_end(&mut bytes).await?;
    if read < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let frame = serde_json::from_slice(&bytes)
        .map_err(|error| FrameError::NotRead(error.classify(), error.line(), error.column()))?;
    Ok(Some(frame))
}

/// Writes one frame and flushes it.
///
/// # Errors
/// The connection breaks, or the frame would be too long.
pub async fn write_frame(
    to: &mut (impl AsyncWrite + Unpin),
    frame: &impl Serialize,
) -> Result<(), FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, frame)
        .map_err(|error| FrameError::NotRead(error.classify(), error.line(), error.column()))?;
    let length = bytes.len() - 4;
    let Some(number) = u32::try_from(length)
        .ok()
        .filter(|_| length <= FRAME_BYTES_MAX)
    else {
        return Err(FrameError::TooLong(length));
    };
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    to.write_all(&bytes).await?;
    to.flush().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Result<Option<Vec<u32>>, FrameError> {
        read_frame(&mut &bytes[..]).await
    }

    #[tokio::test]
    async fn written_frames_read_back_and_an_end_between_frames_is_not_an_error() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &vec![1_u32, 2])
            .await
            .expect("written");
        write_frame(&mut bytes, &Vec::<u32>::new())
            .await
            .expect("written");
        let mut from = &bytes[..];
        let first: Option<Vec<u32>> = read_frame(&mut from).await.expect("a frame");
        let second: Option<Vec<u32>> = read_frame(&mut from).await.expect("a frame");
        let end: Option<Vec<u32>> = read_frame(&mut from).await.expect("the end");
        assert_eq!((first, second, end), (Some(vec![1, 2]), Some(vec![]), None));
    }

    #[tokio::test]
    async fn a_truncated_oversized_or_invalid_frame_is_an_error_that_does_not_quote_it() {
        assert!(matches!(
            read(&[0, 0, 0, 9, b'[']).await,
            Err(FrameError::Io(_))
        ));
        let long = read(&[255, 255, 255, 255]).await;
        assert!(matches!(long, Err(FrameError::TooLong(_))));
        let secret = read(b"\0\0\0\x09\"hunter2\"").await.expect_err("no list");
        assert!(!secret.to_string().contains("hunter2"), "{secret}");
    }
}
