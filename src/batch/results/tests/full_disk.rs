//! Tests of failing writes and failing syncs.

use super::*;

/// A disk with room for some bytes.
#[derive(Debug)]
struct SmallDisk {
    file: File,
    room_bytes: u64,
    can_cut: bool,
    can_sync: bool,
}

impl LineStore for SmallDisk {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let room = self.room_bytes.saturating_sub(offset) as usize;
        LineStore::write_all_at(&mut self.file, &bytes[..bytes.len().min(room)], offset)?;
        if bytes.len() > room {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        if !self.can_cut {
            return Err(io::Error::other("no cut"));
        }
        LineStore::set_len(&mut self.file, bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        if !self.can_sync {
            return Err(io::Error::other("no sync"));
        }
        LineStore::sync_data(&mut self.file)
    }
}

fn on_small_disk(dir: &TempDir, requests: u64, room_bytes: u64) -> Results<SmallDisk> {
    let file = |kind| {
        let path = path(dir, kind);
        let file = paths::open_private(&path).expect("opened");
        let disk = SmallDisk {
            file,
            room_bytes,
            can_cut: true,
            can_sync: true,
        };
        let mut lines = LineFile::new(disk, path, 0);
        lines.cut_and_sync().expect("empty");
        lines
    };
    Results {
        output: file(ResultKind::Output),
        errors: file(ResultKind::Error),
        finished: Finished::new(requests).expect("few"),
        completed: 0,
        failed: 0,
        id_suffix: SUFFIX,
        line: Vec::new(),
        recovered: RecoveredResults::default(),
    }
}

#[test]
fn a_full_disk_leaves_complete_lines_and_the_request_without_a_result() {
    for (len, can_cut) in [(10, true), (10, false), (100_000, true), (100_000, false)] {
        let dir = tempfile::tempdir().expect("a folder");
        let long = "x".repeat(len);
        let mut results = on_small_disk(&dir, 5000, 250_000);
        results.output.file_mut().can_cut = can_cut;
        let mut request = 0;
        let full = loop {
            match add(&mut results, request, ResultKind::Output, &long) {
                Ok(added) => assert!(added),
                Err(error) => break error,
            }
            request += 1;
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        assert!(full.to_string().contains("batch-1.output.jsonl"), "{full}");
        assert!(!results.has(request));
        assert_eq!(results.done(), request);
        if can_cut {
            let on_disk = stored(&dir).len() as u64;
            assert!(on_disk > 0 && on_disk <= request, "{on_disk} of {request}");
        }
        add(&mut results, request, ResultKind::Output, &long).expect_err("full still");
        let disk = results.output.file_mut();
        (disk.room_bytes, disk.can_cut) = (u64::MAX, true);
        assert!(add(&mut results, request, ResultKind::Output, &long).expect("written"));
        results.sync().expect("synced");
        assert_eq!(stored(&dir), (0..=request).collect::<Vec<_>>());
        drop(results);
        assert_eq!(open(&dir, 5000).done(), request + 1);
    }
}

#[test]
fn after_a_failed_sync_each_call_fails_until_the_files_are_opened_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut results = on_small_disk(&dir, 4, u64::MAX);
    add(&mut results, 0, ResultKind::Error, "late").expect("written");
    results.errors.file_mut().can_sync = false;
    results.sync().expect_err("it fails");
    results.errors.file_mut().can_sync = true;
    results.sync().expect_err("unknown lines may be lost");
    let error = add(&mut results, 1, ResultKind::Error, "late").expect_err("refused");
    assert!(
        error.to_string().contains("open the results again"),
        "{error}"
    );
    assert!(!results.has(1));
    drop(results);
    assert!(open(&dir, 4).has(0));
}
