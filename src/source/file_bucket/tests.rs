//! Tests of `file_bucket.rs` with objects in memory.

use futures_util::TryStreamExt;
use object_store::memory::InMemory;

use super::*;
use catalog::Scheme;

/// A folder in memory whose files are put in parts of ten bytes.
fn bucket(objects: &Arc<InMemory>, prefix: &str) -> FileBucket {
    let objects: Arc<InMemory> = Arc::clone(objects);
    FileBucket {
        objects,
        uri: BucketUri {
            scheme: Scheme::S3,
            bucket: "lab".to_owned(),
            prefix: prefix.to_owned(),
        },
        turns: Arc::new(Semaphore::new(2)),
        part_bytes: 10,
    }
}

async fn content(bucket: &FileBucket, name: &str) -> Vec<u8> {
    let opened = bucket.read(name).await.expect("opened");
    let pieces: Vec<bytes::Bytes> = opened.body.try_collect().await.expect("read");
    let content = pieces.concat();
    assert_eq!(opened.bytes, content.len() as u64);
    content
}

#[tokio::test]
async fn a_file_of_any_length_is_read_as_it_was_put_and_deleted_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let objects = Arc::new(InMemory::new());
    let bucket = bucket(&objects, "a/b");
    for length in [0, 1, 9, 10, 11, 20, 95] {
        let bytes: Vec<u8> = (0..length).collect();
        std::fs::write(&path, &bytes).expect("written");
        let put = bucket.put("file-1.jsonl", &path).await.expect("put");
        assert_eq!(put, u64::from(length));
        assert_eq!(content(&bucket, "file-1.jsonl").await, bytes, "{length}");
    }
    let stored = objects.head(&ObjectPath::from("a/b/file-1.jsonl")).await;
    assert_eq!(stored.expect("below the folder").size, 95);
    for _ in 0..2 {
        bucket.delete("file-1.jsonl").await.expect("deleted");
        let error = bucket.read("file-1.jsonl").await.expect_err("deleted");
        assert!(matches!(error, FileBucketError::Missing { .. }), "{error}");
        assert_eq!(error.to_string(), "s3://lab/a/b has no object file-1.jsonl");
    }
}

#[tokio::test]
async fn files_that_are_put_at_the_same_time_wait_for_turns_and_arrive_complete() {
    let folder = tempfile::tempdir().expect("a folder");
    let objects = Arc::new(InMemory::new());
    let bucket = bucket(&objects, "");
    let puts = (0..8_u8).map(|nth| {
        let (bucket, path) = (bucket.clone(), folder.path().join(nth.to_string()));
        std::fs::write(&path, vec![nth; 200]).expect("written");
        async move { bucket.put(&format!("file-{nth}"), &path).await }
    });
    let put = futures_util::future::join_all(puts).await;
    assert!(put.iter().all(Result::is_ok), "{put:?}");
    for nth in 0..8_u8 {
        let name = format!("file-{nth}");
        assert_eq!(content(&bucket, &name).await, vec![nth; 200]);
    }
}

#[tokio::test]
async fn a_file_that_is_gone_from_the_disk_is_an_error_of_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let bucket = bucket(&Arc::new(InMemory::new()), "");
    let error = bucket.put("file-1", &folder.path().join("none")).await;
    let error = error.expect_err("no file");
    assert!(matches!(error, FileBucketError::Disk { .. }), "{error}");
}

#[test]
fn errors_name_the_bucket_and_what_to_check() {
    let bucket = bucket(&Arc::new(InMemory::new()), "files");
    let generic = |text: &str| Error::Generic {
        store: "S3",
        source: text.to_owned().into(),
    };
    for (text, words) in [
        ("<Code>NoSuchBucket</Code>", "create the bucket"),
        ("<Code>AccessDenied</Code> key=secret", "AWS_ACCESS_KEY_ID"),
        ("connection refused", "and the network"),
    ] {
        let error = bucket.failed("file-1", &generic(text)).to_string();
        assert!(
            error.starts_with("s3://lab/files cannot be used"),
            "{error}"
        );
        assert!(error.contains(words), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
