//! Measures this crate's kernels against candle's and against a plain read of the same bytes, alternating within one run, and
//! prints the shortest time of each and the ratios.
//!
//! `cargo bench -p candle-engine --bench kernels`. Options: `-- --threads N` (default: all), `--only Q8_0,Q4K` for some encodings
//! (`Bf16+` is BF16 with inputs rounded to BF16), `--megabytes N` for another size of weights than 192 MB (1 fits the L1 and L2
//! caches). In builds with debug assertions, every pointer in the inner loops is checked, which makes the kernels several times
//! slower.

#![allow(
    dead_code,
    unused_imports,
    reason = "a benchmark uses only some of the engine's internals"
)]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{Device, Module, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

#[path = "../src/kernels/mod.rs"]
mod kernels;
#[path = "../src/spec.rs"]
mod spec;
#[path = "../src/step.rs"]
mod step;
#[path = "../src/stored_tensor.rs"]
mod stored_tensor;
mod texts;

use kernels::{Attention, CacheLayer, CacheShape, Matrix, Pool, Precision, attend, multiply_all};
use step::{PAGE_TOKENS, Span};
use stored_tensor::{Encoding, StoredTensor};

/// Total size of the weights, in megabytes; larger than any last-level cache.
const ALL_MEGABYTES: usize = 192;
const COLUMNS: usize = 2048;
const ROWS: usize = 5632;
const ROUNDS: usize = 5;
const PREFILL_ROWS: usize = 512;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let given = |name: &str| {
        let mut pairs = arguments.windows(2);
        pairs.find(|pair| pair[0] == name).map(|pair| &*pair[1])
    };
    let threads = match given("--threads") {
        Some(threads) => threads.parse()?,
        None => std::thread::available_parallelism()?,
    };
    let all_bytes = given("--megabytes").map_or(Ok(ALL_MEGABYTES), str::parse)? << 20;
    let only = given("--only").map(|only| only.split(',').collect::<Vec<_>>());
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.get())
        .build_global()?;
    let pool = Pool::new(threads);
    println!("{threads} threads, {:?}", pool.level());
    sections(&pool);
    println!(
        "{:5} {:>9} {:>9} {:>6} {:>9} {:>6} {:>6} | {:>9} {:>9} {:>6} | {:>9} {:>9} {:>6} {:>8}",
        "",
        "read GB/s",
        "1: GB/s",
        "/read",
        "candle",
        "ratio",
        "8/1",
        "8: ms",
        "candle",
        "ratio",
        "512: ms",
        "candle",
        "ratio",
        "GFLOP/s"
    );
    let kinds = [
        (Encoding::Q8_0, GgmlDType::Q8_0),
        (Encoding::Q4K, GgmlDType::Q4K),
        (Encoding::Q6K, GgmlDType::Q6K),
        (Encoding::Q5K, GgmlDType::Q5K),
        (Encoding::Q4_0, GgmlDType::Q4_0),
        (Encoding::F32, GgmlDType::F32),
        (Encoding::Bf16, GgmlDType::BF16),
        (Encoding::F16, GgmlDType::F16),
    ];
    for (encoding, kind) in kinds {
        let name = format!("{encoding:?}");
        if only.as_ref().is_none_or(|only| only.contains(&&*name)) {
            products(&pool, &name, (encoding, kind), all_bytes)?;
        }
    }
    let rounding = Pool::new(threads).rounding();
    if only.as_ref().is_none_or(|only| only.contains(&"Bf16+")) {
        let kinds = (Encoding::Bf16, GgmlDType::BF16);
        products(&rounding, "Bf16+", kinds, all_bytes)?;
    }
    if only.is_some() {
        return Ok(());
    }
    for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
        attention(&pool, precision);
    }
    texts::measure(&pool);
    Ok(())
}

fn random(count: usize) -> Vec<f32> {
    let mut source = StdRng::seed_from_u64(1);
    (0..count).map(|_| source.random_range(-1.0..1.0)).collect()
}

/// The shortest time of each function over the rounds, in seconds. The functions alternate.
fn least<const N: usize>(rounds: usize, work: [&dyn Fn(); N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    for _ in 0..rounds {
        for (best, work) in best.iter_mut().zip(work) {
            let start = Instant::now();
            work();
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    best
}

/// Measures the overhead of a parallel section with almost no work.
fn sections(pool: &Pool) {
    let tasks = pool.threads();
    let sum = AtomicU64::new(0);
    let [own, rayon] = least(
        20,
        [
            &|| {
                for _ in 0..1000 {
                    pool.run(tasks, &|task| {
                        sum.fetch_add(task as u64, Ordering::Relaxed);
                    });
                }
            },
            &|| {
                for _ in 0..1000 {
                    rayon::scope(|scope| {
                        for task in 0..tasks {
                            let sum = &sum;
                            scope.spawn(move |_| {
                                sum.fetch_add(task as u64, Ordering::Relaxed);
                            });
                        }
                    });
                }
            },
        ],
    );
    println!(
        "a section: {:.2} µs, of rayon {:.2} µs",
        own * 1e3,
        rayon * 1e3
    );
}

fn read(pool: &Pool, bytes: &[u8]) {
    let sum = AtomicU64::new(0);
    let size = 1 << 20;
    pool.run(bytes.len().div_ceil(size), &|task| {
        let piece = &bytes[task * size..bytes.len().min((task + 1) * size)];
        let mut sums = [0u64; 16];
        for numbers in piece.chunks_exact(128) {
            for (sum, number) in sums.iter_mut().zip(numbers.chunks_exact(8)) {
                *sum ^= u64::from_ne_bytes(number.try_into().unwrap_or_default());
            }
        }
        sum.fetch_xor(sums.iter().fold(0, |a, b| a ^ b), Ordering::Relaxed);
    });
    std::hint::black_box(sum.into_inner());
}

fn products(
    pool: &Pool,
    name: &str,
    (encoding, kind): (Encoding, GgmlDType),
    all_bytes: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let weights = Tensor::from_vec(random(ROWS * COLUMNS), (ROWS, COLUMNS), &Device::Cpu)?;
    let quantised = QTensor::quantize(&weights, kind)?;
    let one = quantised.data()?.into_owned();
    let count = all_bytes.div_ceil(one.len());
    let all: Arc<Vec<u8>> = Arc::new(one.repeat(count));
    let mut matrices = Vec::new();
    let mut theirs = Vec::new();
    for place in 0..count {
        let range = place * one.len()..(place + 1) * one.len();
        let stored = StoredTensor::new(encoding, vec![ROWS, COLUMNS], all.clone(), range)
            .ok_or("wrong size")?;
        matrices.push(Matrix::new(stored)?);
        let dense = matches!(encoding, Encoding::F32 | Encoding::Bf16 | Encoding::F16);
        theirs.push(if dense {
            // candle's 16-bit products are far slower, so its 32-bit ones are the comparison.
            QMatMul::Tensor(weights.copy()?)
        } else {
            QMatMul::from_qtensor(QTensor::new(
                candle_core::quantized::QStorage::from_data(
                    one.clone().into(),
                    &Device::Cpu,
                    kind,
                )?,
                (ROWS, COLUMNS),
            )?)?
        });
    }
    let ours = |rows: usize, some: usize| {
        let input = random(rows * COLUMNS);
        let matrices = &matrices;
        move || {
            let mut output = vec![0.0; rows * ROWS];
            for matrix in matrices.iter().take(some) {
                multiply_all(pool, &[matrix], &input, &mut [&mut output]);
            }
        }
    };
    let candle = |rows: usize, some: usize| -> Result<_, candle_core::Error> {
        let input = Tensor::from_vec(random(rows * COLUMNS), (rows, COLUMNS), &Device::Cpu)?;
        let theirs = &theirs;
        Ok(move || {
            for matrix in theirs.iter().take(some) {
                std::hint::black_box(matrix.forward(&input).ok());
            }
        })
    };
    let plain = || read(pool, &all);
    let [reading, own_1, own_8, their_1, their_8] = least(
        ROUNDS,
        [
            &plain,
            &ours(1, count),
            &ours(8, count),
            &candle(1, count)?,
            &candle(8, count)?,
        ],
    );
    let [own_512, their_512] = least(ROUNDS, [&ours(PREFILL_ROWS, 1), &candle(PREFILL_ROWS, 1)?]);
    let speed = |seconds: f64| all.len() as f64 / seconds * 1e-9;
    let work = 2.0 * (PREFILL_ROWS * ROWS * COLUMNS) as f64;
    println!(
        "{:5} {:9.1} {:9.1} {:6.2} {:9.1} {:6.2} {:6.2} | {:9.2} {:9.2} {:6.2} | {:9.2} {:9.2} {:6.2} {:8.0}",
        name,
        speed(reading),
        speed(own_1),
        reading / own_1,
        speed(their_1),
        their_1 / own_1,
        own_8 / own_1,
        own_8 * 1e3,
        their_8 * 1e3,
        their_8 / own_8,
        own_512 * 1e3,
        their_512 * 1e3,
        their_512 / own_512,
        work / own_512 * 1e-9,
    );
    Ok(())
}

fn attention(pool: &Pool, precision: Precision) {
    let (heads, key_heads, width, context) = (32, 4, 64, 2048);
    let attention = Attention {
        heads,
        score_factor: 0.125,
        score_cap: None,
        window: None,
        causal: true,
    };
    let sequences = 8;
    let pages = context / PAGE_TOKENS;
    let shape = CacheShape {
        pages: sequences * pages,
        heads: key_heads,
        key_width: width,
        value_width: width,
        precision,
    };
    let mut cache = CacheLayer::new(shape);
    let span = |sequence: usize, past: usize, count: usize| Span {
        past,
        count,
        pages: (0..pages)
            .map(|page| (page * sequences + sequence) as u32)
            .collect(),
        adapter: None,
        prompt: 0,
    };
    let rows = random(context * key_heads * width);
    for sequence in 0..sequences {
        cache.write(pool, &[span(sequence, 0, context)], &rows, &rows);
    }
    let looking = |spans: Vec<Span>| {
        let count: usize = spans.iter().map(|span| span.count).sum();
        let queries = random(count * heads * width);
        let cache = &cache;
        move || {
            let mut output = vec![0.0; count * heads * width];
            attend(pool, cache, &spans, &attention, &queries, &mut output);
        }
    };
    let alone = looking(vec![span(0, context - 1, 1)]);
    let eight = looking(
        (0..sequences)
            .map(|sequence| span(sequence, context - 1, 1))
            .collect(),
    );
    let prompt = looking(vec![span(0, 0, PREFILL_ROWS)]);
    let later = looking(vec![span(0, context - PREFILL_ROWS, PREFILL_ROWS)]);
    let [alone, eight, prompt, later] = least(4 * ROUNDS, [&alone, &eight, &prompt, &later]);
    let bytes = (pages * shape.page_bytes()) as f64;
    let work = |tokens: usize| 4.0 * (PREFILL_ROWS * tokens * heads * width) as f64;
    println!(
        "attention {precision:?}, {heads} heads over {key_heads} of {width}, {context} tokens: one row {:.3} ms ({:.1} GB/s), \
         eight sequences {:.3} ms ({:.1} GB/s), a prompt of 512 {:.2} ms ({:.0} GFLOP/s), its last 512 {:.2} ms ({:.0} GFLOP/s)",
        alone * 1e3,
        bytes / alone * 1e-9,
        eight * 1e3,
        8.0 * bytes / eight * 1e-9,
        prompt * 1e3,
        work(PREFILL_ROWS / 2) / prompt * 1e-9,
        later * 1e3,
        work(context - PREFILL_ROWS / 2) / later * 1e-9,
    );
}
