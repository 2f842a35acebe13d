//! Trains the three demo models of `demo/models` on the CPU from `demo/corpus`, or measures them. Not part of the
//! service.
//!
//! `train_demo [--only NAME] [--steps COUNT] [--into FOLDER]` trains; `train_demo --check [--only NAME]` prints the number of
//! questions each model answers correctly.
//!
//! With glibc, `MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184` makes training several times faster, because
//! the memory of one step is reused by the next.

mod check;
mod corpus;
mod folder;
mod network;

use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use check::SavedModel;
use corpus::Topic;
use network::{Network, NetworkShape};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::error::Error;
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

/// Tokens of one training row.
const LENGTH: usize = 160;
/// Rows of one training step.
const ROWS: usize = 12;
const PEAK_LEARNING_RATE: f64 = 3e-3;
const WARM_UP_STEPS: usize = 60;
const LARGEST_GRADIENT: f64 = 1.0;

struct Recipe {
    name: &'static str,
    parameters: &'static str,
    seed: u64,
    steps: usize,
    shape: NetworkShape,
}

const RECIPES: [Recipe; 3] = [
    Recipe {
        name: "tiny-chat",
        parameters: "two hundred thousand",
        seed: 11,
        steps: 3200,
        shape: NetworkShape {
            vocabulary: 640,
            hidden: 64,
            intermediate: 192,
            layers: 3,
            heads: 4,
            key_value_heads: 2,
            positions: 512,
        },
    },
    Recipe {
        name: "tiny-helper",
        parameters: "half a million",
        seed: 12,
        steps: 2600,
        shape: NetworkShape {
            vocabulary: 640,
            hidden: 96,
            intermediate: 256,
            layers: 4,
            heads: 4,
            key_value_heads: 2,
            positions: 512,
        },
    },
    Recipe {
        name: "tiny-guide",
        parameters: "eight hundred thousand",
        seed: 13,
        steps: 2600,
        shape: NetworkShape {
            vocabulary: 640,
            hidden: 128,
            intermediate: 352,
            layers: 4,
            heads: 4,
            key_value_heads: 2,
            positions: 512,
        },
    },
];

/// The token ids of one row, and for each whether it is to be predicted.
struct Row {
    tokens: Vec<u32>,
    wanted: Vec<bool>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        arguments
            .iter()
            .position(|argument| argument == flag)
            .and_then(|place| arguments.get(place + 1))
    };
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo");
    let models = value("--into").map_or_else(|| demo.join("models"), PathBuf::from);
    for recipe in RECIPES
        .iter()
        .filter(|recipe| value("--only").is_none_or(|name| name == recipe.name))
    {
        let folder = models.join(recipe.name);
        let topics = corpus::read(&demo.join("corpus"), recipe.name, recipe.parameters)?;
        if arguments.iter().any(|argument| argument == "--check") {
            println!(
                "{}\n{}",
                recipe.name,
                SavedModel::load(&folder)?.measure(&topics, 12)?
            );
        } else {
            let steps = value("--steps")
                .map(|steps| steps.parse())
                .transpose()?
                .unwrap_or(recipe.steps);
            train(recipe, steps, &topics, &folder)?;
        }
    }
    Ok(())
}

fn train(
    recipe: &Recipe,
    steps: usize,
    topics: &[Topic],
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let tokenizer = folder::train_tokenizer(topics, recipe.shape.vocabulary)?;
    let shape = NetworkShape {
        vocabulary: tokenizer.get_vocab_size(true),
        ..recipe.shape
    };
    let network = Network::new(shape, recipe.seed)?;
    println!(
        "{}: {} parameters, vocabulary {}, {} answers",
        recipe.name,
        network.parameter_count(),
        shape.vocabulary,
        topics.len()
    );
    let mut random = StdRng::seed_from_u64(recipe.seed);
    let variables = network.variables().values().cloned().collect();
    let mut optimizer = AdamW::new(
        variables,
        ParamsAdamW {
            lr: PEAK_LEARNING_RATE,
            beta2: 0.98,
            weight_decay: 0.02,
            ..Default::default()
        },
    )?;
    for step in 0..steps {
        optimizer.set_learning_rate(learning_rate(step, steps));
        let rows = (0..ROWS)
            .map(|_| row(topics, &tokenizer, &mut random))
            .collect::<Result<Vec<_>, _>>()?;
        let loss = loss(&network, &rows)?;
        let mut gradients = loss.backward()?;
        shorten(&network, &mut gradients)?;
        optimizer.step(&gradients)?;
        if step % 20 == 0 || step + 1 == steps {
            println!(
                "{} step {step}/{steps} loss {:.4}",
                recipe.name,
                loss.to_scalar::<f32>()?
            );
        }
    }
    folder::write(folder, &shape, &network, &tokenizer)?;
    let saved = SavedModel::load(folder)?;
    println!(
        "{}: largest difference of logits to candle-transformers: {:.2e}",
        recipe.name,
        difference(&network, &saved, &tokenizer)?
    );
    let figures = saved.measure(topics, 12)?;
    println!("{figures}");
    let card = folder::Card {
        name: recipe.name,
        seed: recipe.seed,
        steps,
        figures: &figures,
    };
    folder::write_card(folder, &shape, network.parameter_count(), &card)
}

/// Rises linearly, then falls along half a cosine to a fiftieth of its peak.
fn learning_rate(step: usize, steps: usize) -> f64 {
    let warm = (step + 1) as f64 / WARM_UP_STEPS as f64;
    let fall = 0.5 * (1.0 + (std::f64::consts::PI * step as f64 / steps as f64).cos());
    PEAK_LEARNING_RATE * warm.min(1.0) * fall.max(0.02)
}

/// Concatenates conversations of independent questions until the row is full. One row in fifteen is plain answers, for the
/// completions route.
fn row(
    topics: &[Topic],
    tokenizer: &Tokenizer,
    random: &mut StdRng,
) -> Result<Row, Box<dyn Error>> {
    let mut row = Row {
        tokens: Vec::new(),
        wanted: Vec::new(),
    };
    let plain = random.random_ratio(1, 15);
    if !plain && random.random_ratio(1, 8) {
        let wish = [
            "You are a helpful assistant.",
            "Answer briefly.",
            "You answer questions about the model pool.",
        ]
        .choose(random)
        .unwrap_or(&"");
        append(
            &mut row,
            tokenizer,
            &format!("{}system\n{wish}{}\n", folder::START, folder::END),
            false,
        )?;
    }
    while row.tokens.len() < LENGTH {
        let topic = topics.choose(random).ok_or("the corpus is empty")?;
        if plain {
            append(
                &mut row,
                tokenizer,
                &format!("{}{}", topic.response, folder::END_OF_TEXT),
                true,
            )?;
            continue;
        }
        let question = corpus::vary(
            topic
                .learnt
                .choose(random)
                .ok_or("a topic without questions")?,
            random,
        );
        append(
            &mut row,
            tokenizer,
            &format!(
                "{0}user\n{question}{1}\n{0}assistant\n",
                folder::START,
                folder::END
            ),
            false,
        )?;
        append(
            &mut row,
            tokenizer,
            &format!("{}{}", topic.response, folder::END),
            true,
        )?;
        append(&mut row, tokenizer, "\n", false)?;
    }
    row.tokens.truncate(LENGTH);
    row.wanted.truncate(LENGTH);
    Ok(row)
}

fn append(
    row: &mut Row,
    tokenizer: &Tokenizer,
    text: &str,
    wanted: bool,
) -> Result<(), Box<dyn Error>> {
    let encoding = tokenizer
        .encode(text, false)
        .map_err(|error| error.to_string())?;
    row.tokens.extend(encoding.get_ids());
    row.wanted.resize(row.tokens.len(), wanted);
    Ok(())
}

/// Mean cross entropy of the tokens to predict, each from the token before it.
fn loss(network: &Network, rows: &[Row]) -> candle_core::Result<Tensor> {
    let (mut inputs, mut places, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        inputs.extend_from_slice(&row.tokens[..LENGTH - 1]);
        for place in (0..LENGTH - 1).filter(|place| row.wanted[place + 1]) {
            places.push((index * (LENGTH - 1) + place) as u32);
            targets.push(row.tokens[place + 1]);
        }
    }
    let inputs = Tensor::from_vec(inputs, (rows.len(), LENGTH - 1), &Device::Cpu)?;
    let hidden = network.hidden_states(&inputs)?;
    let chosen = hidden.index_select(&Tensor::new(places, &Device::Cpu)?, 0)?;
    candle_nn::loss::cross_entropy(
        &network.logits(&chosen)?,
        &Tensor::new(targets, &Device::Cpu)?,
    )
}

/// Clips the gradients by their global norm, which limits the effect of an unusual row.
fn shorten(
    network: &Network,
    gradients: &mut candle_core::backprop::GradStore,
) -> candle_core::Result<()> {
    let mut squares = 0.0;
    for variable in network.variables().values() {
        if let Some(gradient) = gradients.get(variable) {
            squares += f64::from(gradient.sqr()?.sum_all()?.to_scalar::<f32>()?);
        }
    }
    let length = squares.sqrt();
    if length > LARGEST_GRADIENT {
        for variable in network.variables().values() {
            if let Some(gradient) = gradients.remove(variable) {
                gradients.insert(variable, (gradient * (LARGEST_GRADIENT / length))?);
            }
        }
    }
    Ok(())
}

/// Verifies that candle-transformers computes the same from the saved folder as the trained network.
fn difference(
    network: &Network,
    saved: &SavedModel,
    tokenizer: &Tokenizer,
) -> Result<f32, Box<dyn Error>> {
    let text = "<|im_start|>user\nHow do I load a model?<|im_end|>\n<|im_start|>assistant\n";
    let tokens = tokenizer
        .encode(text, false)
        .map_err(|error| error.to_string())?
        .get_ids()
        .to_vec();
    let input = Tensor::new(tokens.as_slice(), &Device::Cpu)?.unsqueeze(0)?;
    let hidden = network.hidden_states(&input)?;
    let last = hidden.narrow(0, tokens.len() - 1, 1)?;
    let ours: Vec<f32> = network
        .logits(&last)?
        .squeeze(0)?
        .to_dtype(DType::F32)?
        .to_vec1()?;
    let theirs = saved.last_logits(&tokens)?;
    Ok(ours
        .iter()
        .zip(&theirs)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max))
}
