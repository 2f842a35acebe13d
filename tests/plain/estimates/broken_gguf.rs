//! Errors for GGUF files that are truncated, of another format, or malicious.

use model_pool::catalog::ModelFiles;

use super::assert_has;
use super::gguf::{File, read, read_bytes, small};

#[test]
fn a_file_cut_off_anywhere_is_refused_with_its_name_and_place() {
    let bytes = small().bytes();
    // Every position in the header, and some after it; padding may follow the last tensor.
    let lengths = (0..700).chain((700..bytes.len() - 32).step_by(97));
    for length in lengths {
        let error = read_bytes(&bytes[..length]).unwrap_err();
        assert_has(&error, &["model.gguf", "at byte"]);
    }
    let error = read_bytes(&bytes[..bytes.len() - 100]).unwrap_err();
    let length = bytes.len() - 100;
    assert_has(
        &error,
        &[
            "blk.0.attn_q.weight",
            "cut off",
            &format!("{length} bytes long"),
        ],
    );
}

#[test]
fn no_corrupted_header_byte_causes_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let sound = small().bytes();
    let mut refused = 0;
    for place in 0..700 {
        for value in [0, 9, 0x7f, 0xff] {
            let mut bytes = sound.clone();
            bytes[place] = value;
            std::fs::write(&path, bytes).unwrap();
            // A changed byte either changes a harmless figure or makes the file invalid; nothing else may happen.
            refused += u32::from(ModelFiles::read(&path).is_err());
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn files_of_other_formats_are_refused_with_their_format() {
    assert_has(
        &read_bytes(b"PK\x03\x04 and more bytes").unwrap_err(),
        &["not a GGUF file"],
    );
    let version = |version: u32| {
        let mut file = small();
        file.version = Some(version);
        read(&file).unwrap_err()
    };
    assert_has(&version(1), &["version is 1", "convert"]);
    assert_has(&version(4), &["version is 4"]);
    assert_has(&version(3_u32.swap_bytes()), &["big-endian"]);
}

#[test]
fn malicious_numbers_are_refused_and_allocate_nothing() {
    for huge in [1 << 60, u64::MAX] {
        let mut file = small();
        file.tensor_claim = Some(huge);
        assert_has(
            &read(&file).unwrap_err(),
            &["at byte 16", "tensors", "are left"],
        );
        let mut file = small();
        file.pair_claim = Some(huge);
        assert_has(
            &read(&file).unwrap_err(),
            &["at byte 24", "values", "are left"],
        );

        let mut bytes = small().bytes();
        bytes[24..32].copy_from_slice(&huge.to_le_bytes());
        assert_has(&read_bytes(&bytes).unwrap_err(), &["a key claims"]);

        let shape = [huge, huge];
        assert_has(
            &read(&small().tensor("x", &shape, 0, 0)).unwrap_err(),
            &["`x`", "impossible shape"],
        );
        let mut file = File::default();
        file.key("long.text", 8);
        file.pairs.extend(huge.to_le_bytes());
        assert_has(
            &read(&file).unwrap_err(),
            &["long.text", "truncated or damaged"],
        );
        let mut file = File::default();
        file.key("long.list", 9);
        file.pairs.extend(10_u32.to_le_bytes());
        file.pairs.extend(huge.to_le_bytes());
        assert_has(&read(&file).unwrap_err(), &["long.list", "are left"]);
    }
    let mut file = File::default();
    file.key("deep", 9);
    for _ in 0..100 {
        file.pairs.extend(9_u32.to_le_bytes());
        file.pairs.extend(1_u64.to_le_bytes());
    }
    file.pairs.extend([0; 200]);
    assert_has(&read(&file).unwrap_err(), &["deep", "deeply nested"]);
    let odd = small().tensor("x", &[33], 2, 0);
    assert_has(
        &read(&odd).unwrap_err(),
        &["`x`", "rows of 33", "blocks of 32"],
    );
    for (count, part) in [(u32::MAX, "at most 4096 layers"), (3, "for 2 layers")] {
        let layers = File::default()
            .word("general.architecture", "llama")
            .number("llama.block_count", count)
            .number("llama.embedding_length", 128)
            .list("llama.attention.head_count", &[8, 8]);
        let claim = format!("block_count` is {count}");
        assert_has(&read(&layers).unwrap_err(), &[&claim, part]);
    }
    let predicting = small().number("llama.nextn_predict_layers", 3);
    assert_has(
        &read(&predicting).unwrap_err(),
        &["nextn_predict_layers` is 3", "block_count` is 2"],
    );
    let alignment = small().number("general.alignment", 3);
    assert_has(&read(&alignment).unwrap_err(), &["general.alignment is 3"]);
}

#[test]
fn a_missing_size_is_refused_with_its_key() {
    assert_has(
        &read(&File::default()).unwrap_err(),
        &["general.architecture"],
    );
    let file = File::default().word("general.architecture", "llama");
    assert_has(&read(&file).unwrap_err(), &["llama.attention.head_count"]);
}
