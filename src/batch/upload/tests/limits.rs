//! Tests of limits, and of damaged gzip data.

use super::*;

#[test]
fn each_limit_has_its_error_and_its_value_is_allowed() {
    let text = lines(9);
    let exact = UploadLimits {
        bytes_max: text.len() as u64,
        line_bytes_max: line(0).len(),
        lines_max: 9,
        models_max: 3,
    };
    upload(exact, [text.as_bytes()]).expect("at every limit");
    let cases = [
        (
            UploadLimits {
                bytes_max: exact.bytes_max - 1,
                ..exact
            },
            format!("the file is larger than {} bytes", exact.bytes_max - 1),
        ),
        (
            UploadLimits {
                line_bytes_max: 10,
                ..exact
            },
            "line 1: the line is longer than 10 bytes".to_owned(),
        ),
        (
            UploadLimits {
                lines_max: 8,
                ..exact
            },
            "the file has more than 8 requests".to_owned(),
        ),
        (
            UploadLimits {
                models_max: 2,
                ..exact
            },
            "the file has requests for more than 2 models".to_owned(),
        ),
    ];
    for (limits, message) in cases {
        for text in [text.as_bytes().to_vec(), gzip(text.as_bytes())] {
            let refused = upload(limits, [text.as_slice()]).expect_err(&message);
            assert_eq!(refused.to_string(), message);
        }
    }
    for empty in ["", "\n", "\u{feff}", " \r\n\r\n"] {
        assert_eq!(error(empty.as_bytes()), "the file has no requests");
        assert_eq!(error(&gzip(empty.as_bytes())), "the file has no requests");
    }
}

#[test]
fn a_line_without_end_is_refused_while_it_arrives() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut upload = Upload::create(dir.path(), ID, LIMITS).expect("created");
    upload.write(&[b'x'; 1000]).expect("at the limit");
    let refused = upload.write(b"x").expect_err("over it");
    assert_eq!(
        refused.to_string(),
        "line 1: the line is longer than 1000 bytes"
    );
}

#[test]
fn a_small_file_that_decompresses_to_much_text_stops_at_the_limit() {
    let bombs = [
        (
            gzip(&vec![b'\n'; 200 << 20]),
            "the file is larger than 1048576 bytes",
        ),
        (
            gzip(&vec![b'x'; 200 << 20]),
            "line 1: the line is longer than 1000 bytes",
        ),
        (
            gzip(b"").repeat(60_000),
            "the file is larger than 1048576 bytes",
        ),
    ];
    for (bomb, message) in bombs {
        assert!(bomb.len() < 2 << 20);
        assert_eq!(error(&bomb), message);
    }
}

#[test]
fn a_gzip_file_cut_at_any_byte_is_refused() {
    let whole = gzip(lines(5).as_bytes());
    for kept in 2..whole.len() {
        assert_eq!(
            error(&whole[..kept]),
            "the file cannot be decompressed: the gzip data ends early or has a wrong checksum"
        );
    }
    let two = [whole.as_slice(), &whole[..4]].concat();
    assert!(error(&two).contains("ends early"));
    let mut wrong = whole.clone();
    let checksum = wrong.len() - 8;
    wrong[checksum] ^= 1;
    assert!(error(&wrong).contains("checksum"));
    let followed = [whole.as_slice(), b"plain text"].concat();
    assert!(error(&followed).contains("damaged"));
}
