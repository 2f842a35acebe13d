//! Compares the preprocessing with that of `transformers`, and tests the limits on image files.

use super::decode::Encoded;
use super::held::{HELD_BYTES_MAX, HeldBytes};
use super::processor::IMAGE_TOKENS_MAX;
use super::source::{IMAGE_BYTES_MAX, IMAGES_MAX};
use super::{Grid, ImagePart, Processor, ResizeRule, Vision};
use crate::api_error::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::{ImageFormat, RgbImage};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest accepted difference of a normalised pixel; one step of a byte is 8e-3.
const TOLERANCE: f32 = 1e-6;
const PLACEHOLDER: u32 = 60;

fn folder_of(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/library");
    folder.join(name)
}

fn vision() -> Vision {
    let processor =
        Processor::load(&folder_of("qwen3-vl"), ResizeRule::Qwen, (4, 2)).expect("is read");
    Vision::new(processor, PLACEHOLDER)
}

fn part(media_type: &str, bytes: &[u8]) -> ImagePart {
    ImagePart {
        place: "here".to_owned(),
        url: format!("data:{media_type};base64,{}", STANDARD.encode(bytes)),
    }
}

fn encoded(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let image = RgbImage::from_fn(width, height, |x, y| {
        image::Rgb([(x * 3) as u8, (y * 5) as u8, 100])
    });
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, format).expect("is written");
    file.into_inner()
}

fn refusal(part: ImagePart) -> ApiError {
    let vision = vision();
    let refused = vision
        .read(&[part])
        .and_then(|read| vision.place(vec![PLACEHOLDER], read))
        .and_then(|(_, undecoded)| vision.decode(undecoded));
    refused.expect_err("must be refused")
}

#[test]
fn patches_equal_those_of_transformers() {
    for (name, rule) in [
        ("qwen3-vl", ResizeRule::Qwen),
        ("paddleocr-vl", ResizeRule::Paddle),
    ] {
        let folder = folder_of(name);
        let text = std::fs::read(folder.join("seen.json")).expect("is kept");
        let seen: Value = serde_json::from_slice(&text).expect("JSON");
        let bytes = std::fs::read(folder.join("seen.safetensors")).expect("is kept");
        let tensors = SafeTensors::deserialize(&bytes).expect("tensors");
        let processor = Processor::load(&folder, rule, (4, 2)).expect("is read");
        let vision = Vision::new(processor, PLACEHOLDER);
        let grids = seen["grids"].as_object().expect("grids");
        assert!(grids.len() >= 8);
        for (file, grid) in grids {
            let bytes = std::fs::read(folder.join(file)).expect("is kept");
            let read = vision.read(&[part("image/png", &bytes)]).expect("reads");
            let (_, undecoded) = vision.place(vec![PLACEHOLDER], read).expect("is placed");
            let images = vision.decode(undecoded).expect("decodes");
            let image = images.iter().next().expect("one image");
            let found = json!([1, image.grid.rows, image.grid.columns]);
            assert_eq!(found, *grid, "{name} {file}");
            let tensor = tensors.tensor(file).expect("its patches");
            let (numbers, _) = tensor.data().as_chunks::<4>();
            let found = image.patches();
            assert_eq!(found.len(), numbers.len(), "{name} {file}");
            let pairs = found.iter().zip(numbers);
            let most = pairs
                .map(|(found, number)| (found - f32::from_le_bytes(*number)).abs())
                .fold(0.0, f32::max);
            assert!(most <= TOLERANCE, "{name} {file}: {most}");
        }
    }
}

#[test]
fn every_format_is_decoded_by_its_content() {
    for format in [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::WebP,
        ImageFormat::Gif,
    ] {
        let read = Encoded::new("here", encoded(30, 20, format)).expect("a header");
        assert_eq!((read.width, read.height), (30, 20), "{format:?}");
        let pixels = read.decode().expect("decodes");
        let pixel = pixels.get_pixel(20, 10).0;
        let near = |a: u8, b: u8| a.abs_diff(b) < 12;
        assert!(
            near(pixel[0], 60) && near(pixel[1], 50),
            "{format:?}: {pixel:?}"
        );
    }
    let file = encoded(30, 20, ImageFormat::Png);
    let vision = vision();
    assert!(vision.read(&[part("image/jpeg", &file)]).is_ok());
}

/// The bytes of a PNG file whose header promises another size.
fn with_size(mut file: Vec<u8>, width: u32, height: u32) -> Vec<u8> {
    file[16..20].copy_from_slice(&width.to_be_bytes());
    file[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc(&file[12..29]);
    file[29..33].copy_from_slice(&sum.to_be_bytes());
    file
}

/// The checksum of PNG's chunks.
fn crc(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

#[test]
fn a_header_with_too_many_pixels_is_refused_before_decoding() {
    let giant = with_size(encoded(8, 8, ImageFormat::Png), 60_000, 60_000);
    let error = refusal(part("image/png", &giant));
    assert_eq!(error.status, 400);
    for number in ["60000 × 60000", "3600000000", "25165824"] {
        assert!(error.message.contains(number), "{}", error.message);
    }
    let none = with_size(encoded(8, 8, ImageFormat::Png), 0, 8);
    assert_eq!(refusal(part("image/png", &none)).status, 400);
    // GIF has 16 bits for a side.
    let mut gif = encoded(8, 8, ImageFormat::Gif);
    gif[6..10].copy_from_slice(&[0xFF; 4]);
    let error = refusal(part("image/gif", &gif));
    assert!(error.message.contains("65535 × 65535"), "{}", error.message);
    // Within the pixels, but with 8 bytes each.
    let mut deep = Cursor::new(Vec::new());
    image::ImageBuffer::<image::Rgba<u16>, _>::new(8, 8)
        .write_to(&mut deep, ImageFormat::Png)
        .expect("is written");
    let deep = with_size(deep.into_inner(), 5000, 5000);
    let error = refusal(part("image/png", &deep));
    assert!(
        error.message.contains("200000000 bytes"),
        "{}",
        error.message
    );
}

#[test]
fn damaged_and_foreign_files_are_refused_with_their_field() {
    let file = encoded(64, 64, ImageFormat::Png);
    let svg = b"<svg xmlns='http://www.w3.org/2000/svg'/>";
    let bomb = with_size(encoded(8, 8, ImageFormat::Png), 4000, 4000);
    for (part, words) in [
        (part("image/png", &file[..file.len() / 2]), "damaged PNG"),
        (part("image/png", &file[..20]), "damaged PNG"),
        (
            part("image/jpeg", &encoded(64, 64, ImageFormat::Jpeg)[..150]),
            "damaged JPEG",
        ),
        (
            part("image/webp", &encoded(64, 64, ImageFormat::WebP)[..40]),
            "damaged WebP",
        ),
        (
            part("image/gif", &encoded(64, 64, ImageFormat::Gif)[..20]),
            "damaged GIF",
        ),
        (part("image/png", &bomb), "damaged PNG"),
        (part("image/png", b"not an image"), "is not a PNG"),
        (part("image/png", svg), "is not a PNG"),
        (part("image/png", b""), "0 bytes"),
        (part("image/svg+xml", svg), "image/svg+xml"),
        (part("video/mp4", &file), "video/mp4"),
        (part("", &file), "media type ``"),
        (part("image/bmp", &file), "image/bmp"),
        (
            part("image/png", &encoded(402, 2, ImageFormat::Png)),
            "200 times",
        ),
    ] {
        let error = refusal(part);
        assert_eq!(error.status, 400, "{}", error.message);
        assert_eq!(error.param.as_deref(), Some("here"), "{}", error.message);
        assert!(error.message.contains(words), "{words}: {}", error.message);
    }
    for (url, words) in [
        ("https://example.com/cat.png", "fetches nothing"),
        ("/etc/passwd", "fetches nothing"),
        ("data:image/png;base64", "comma"),
        ("data:image/png,AAAA", "base64"),
        ("data:image/png;base64,!!!!", "base64"),
    ] {
        let place = "here".to_owned();
        let url = url.to_owned();
        let error = refusal(ImagePart { place, url });
        assert!(error.message.contains(words), "{words}: {}", error.message);
    }
    let large = vec![0; IMAGE_BYTES_MAX + 1];
    let error = refusal(part("image/png", &large));
    assert!(error.message.contains("10485760"), "{}", error.message);
}

#[test]
fn the_number_of_images_and_of_placeholders_is_checked() {
    let vision = vision();
    let image = part("image/png", &encoded(8, 8, ImageFormat::Png));
    let many = vec![image.clone(); IMAGES_MAX + 1];
    let error = vision.read(&many).err().expect("must be refused");
    assert!(
        error.message.contains("17 images; at most 16"),
        "{}",
        error.message
    );
    let read = vision.read(&many[1..]).expect("reads");
    let error = vision.place(vec![1, PLACEHOLDER], read).err();
    let error = error.expect("must be refused");
    assert!(
        error.message.contains("1 placeholders"),
        "{}",
        error.message
    );
    let none = vision.read(&[]).expect("reads");
    assert!(vision.place(vec![PLACEHOLDER], none).is_err());
    let read = vision.read(&many[15..]).expect("reads");
    let placed = vision.place(vec![1, PLACEHOLDER, 2, PLACEHOLDER], read);
    let (tokens, undecoded) = placed.expect("is placed");
    // 16 × 16 pixels are two by two tokens.
    let expected = [1, 60, 60, 60, 60, 2, 60, 60, 60, 60];
    assert_eq!(tokens, expected);
    let images = vision.decode(undecoded).expect("decodes");
    let firsts: Vec<usize> = images.iter().map(|image| image.first).collect();
    assert_eq!(firsts, [1, 6]);
}

#[test]
fn a_large_image_is_reduced_to_the_largest_number_of_tokens() {
    let size = json!({"shortest_edge": 65_536, "longest_edge": 1_usize << 24});
    let settings = json!({"size": size, "patch_size": 16, "merge_size": 2});
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("preprocessor_config.json");
    std::fs::write(&file, settings.to_string()).expect("is written");
    let processor = Processor::load(folder.path(), ResizeRule::Qwen, (16, 2)).expect("is read");
    let grid = processor.grid(5000, 5000).expect("a grid");
    assert_eq!(processor.tokens(grid), IMAGE_TOKENS_MAX);
    assert_eq!(
        grid,
        Grid {
            rows: 128,
            columns: 128
        }
    );
    assert!(processor.grid(201, 1).is_err() && processor.grid(200, 1).is_ok());
    let error = Processor::load(folder.path(), ResizeRule::Qwen, (14, 2)).expect_err("contradicts");
    assert!(error.to_string().contains("patch_size is 16"), "{error}");
    for (name, value) in [
        ("do_resize", json!(false)),
        ("resample", json!(2)),
        ("rescale_factor", json!(1.0)),
        ("image_mean", json!([0.5])),
    ] {
        let mut wrong = settings.clone();
        wrong[name] = value;
        std::fs::write(&file, wrong.to_string()).expect("is written");
        let error =
            Processor::load(folder.path(), ResizeRule::Qwen, (16, 2)).expect_err("is refused");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn the_memory_of_images_is_bounded_and_returned() {
    let held = Arc::new(HeldBytes::default());
    let most = held.take(HELD_BYTES_MAX).expect("fits");
    assert_eq!(held.take(1).err(), Some(HELD_BYTES_MAX));
    drop(most);
    assert!(held.take(1).is_ok());
}
