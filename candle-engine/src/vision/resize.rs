//! Resizes images with the bicubic filter of Pillow, whose results `transformers` uses, to the same bytes.

use image::RgbImage;

/// Bits after the point of the filter's fixed-point weights.
const PRECISION: u32 = 22;
const CHANNELS: usize = 3;

/// The source pixels of one target pixel, with their weights.
struct Taps {
    first: usize,
    weights: Vec<i64>,
}

/// Returns the pixels in `width` × `height`, row by row, three bytes each.
pub(super) fn bicubic(image: RgbImage, width: u32, height: u32) -> Vec<u8> {
    let (from_width, from_height) = (image.width() as usize, image.height() as usize);
    let (width, height) = (width as usize, height as usize);
    let mut pixels = image.into_raw();
    // First the rows, then the columns, with bytes between.
    if width != from_width {
        let taps = taps(from_width, width);
        let mut wide = Vec::with_capacity(from_height * width * CHANNELS);
        for row in pixels.chunks_exact(from_width * CHANNELS) {
            for tap in &taps {
                for channel in 0..CHANNELS {
                    let source = row[tap.first * CHANNELS + channel..].iter();
                    wide.push(sum(tap, source.step_by(CHANNELS)));
                }
            }
        }
        pixels = wide;
    }
    if height != from_height {
        let row = width * CHANNELS;
        let mut high = Vec::with_capacity(height * row);
        for tap in &taps(from_height, height) {
            for column in 0..row {
                let source = pixels[tap.first * row + column..].iter();
                high.push(sum(tap, source.step_by(row)));
            }
        }
        pixels = high;
    }
    pixels
}

fn sum<'a>(taps: &Taps, source: impl Iterator<Item = &'a u8>) -> u8 {
    let products = taps.weights.iter().zip(source);
    let sum: i64 = products
        .map(|(weight, byte)| weight * i64::from(*byte))
        .sum();
    let rounded = (sum + (1 << (PRECISION - 1))) >> PRECISION;
    rounded.clamp(0, 255) as u8
}

/// The taps of all target pixels along one axis. The filter is stretched by the factor of a reduction.
fn taps(from: usize, to: usize) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let reach = 2.0 * stretch;
    (0..to)
        .map(|nth| {
            let centre = (nth as f64 + 0.5) * scale;
            let first = ((centre - reach + 0.5).max(0.0)) as usize;
            let end = ((centre + reach + 0.5) as usize).min(from);
            let weights: Vec<f64> = (first..end)
                .map(|source| cubic((source as f64 - centre + 0.5) / stretch))
                .collect();
            let total: f64 = weights.iter().sum();
            let fixed = |weight: &f64| {
                let weight = weight / total * f64::from(1 << PRECISION);
                // Halves are rounded away from zero.
                (weight + 0.5_f64.copysign(weight)) as i64
            };
            Taps {
                first,
                weights: weights.iter().map(fixed).collect(),
            }
        })
        .collect()
}

/// Keys' cubic filter with a = −0.5.
fn cubic(distance: f64) -> f64 {
    let distance = distance.abs();
    if distance < 1.0 {
        (1.5 * distance - 2.5) * distance * distance + 1.0
    } else if distance < 2.0 {
        ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    } else {
        0.0
    }
}
