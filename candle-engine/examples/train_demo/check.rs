//! Asks a saved model questions through candle-transformers' Llama, and counts correct answers.

use crate::corpus::{Topic, capitalised, vary};
use crate::folder::{END_ID, END_OF_TEXT_ID};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama, LlamaConfig};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::error::Error;
use std::path::Path;
use tokenizers::Tokenizer;

/// A saved model, loaded like any user of candle would load it.
pub struct SavedModel {
    llama: Llama,
    config: Config,
    tokenizer: Tokenizer,
}

impl SavedModel {
    /// # Errors
    /// If a file is missing or invalid.
    pub fn load(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let config: LlamaConfig =
            serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
        let config = config.into_config(false);
        let weights = std::fs::read(folder.join("model.safetensors"))?;
        let builder = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu)?;
        let tokenizer = Tokenizer::from_file(folder.join("tokenizer.json"))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            llama: Llama::load(builder, &config)?,
            config,
            tokenizer,
        })
    }

    /// Returns the logits after the last of `tokens`.
    ///
    /// # Errors
    /// If candle fails.
    pub fn last_logits(&self, tokens: &[u32]) -> Result<Vec<f32>, Box<dyn Error>> {
        let mut cache = Cache::new(false, DType::F32, &self.config, &Device::Cpu)?;
        let input = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
        Ok(self
            .llama
            .forward(&input, 0, &mut cache)?
            .squeeze(0)?
            .to_vec1()?)
    }

    /// Generates the greedy answer to a question, at most 96 tokens.
    ///
    /// # Errors
    /// If candle or the tokenizer fails.
    pub fn respond(&self, question: &str) -> Result<String, Box<dyn Error>> {
        let prompt = format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n");
        let mut input = self
            .tokenizer
            .encode(prompt, false)
            .map_err(|error| error.to_string())?
            .get_ids()
            .to_vec();
        let mut cache = Cache::new(true, DType::F32, &self.config, &Device::Cpu)?;
        let (mut position, mut output) = (0, Vec::new());
        while output.len() < 96 {
            let tensor = Tensor::new(input.as_slice(), &Device::Cpu)?.unsqueeze(0)?;
            let logits = self
                .llama
                .forward(&tensor, position, &mut cache)?
                .squeeze(0)?;
            let token = logits.argmax(0)?.to_scalar::<u32>()?;
            if token == END_ID || token == END_OF_TEXT_ID {
                break;
            }
            position += input.len();
            input = vec![token];
            output.push(token);
        }
        Ok(self
            .tokenizer
            .decode(&output, true)
            .map_err(|error| error.to_string())?)
    }

    /// Counts correct answers and prints up to `shown` wrong ones. Returns the text for the model card.
    ///
    /// # Errors
    /// If candle or the tokenizer fails.
    pub fn measure(&self, topics: &[Topic], shown: usize) -> Result<String, Box<dyn Error>> {
        let mut random = StdRng::seed_from_u64(0x005e_ed0f_7e57);
        let mut lines = Vec::new();
        let mut print_left = shown;
        for (title, held_out, varied) in [
            ("learnt questions, as written", false, false),
            ("held-out questions, as written", true, false),
            (
                "held-out questions, varied (case, punctuation, politeness, typing mistakes)",
                true,
                true,
            ),
        ] {
            let (mut right, mut all) = (0, 0);
            for topic in topics {
                for question in if held_out {
                    &topic.held_out
                } else {
                    &topic.learnt
                } {
                    let question = if varied {
                        vary(question, &mut random)
                    } else {
                        capitalised(question) + "?"
                    };
                    let response = self.respond(&question)?;
                    all += 1;
                    right += usize::from(response == topic.response);
                    if response != topic.response && print_left > 0 {
                        print_left -= 1;
                        println!("  wrong: {question:?} -> {response:?}");
                    }
                }
            }
            lines.push(format!(
                "- {title}: {right} of {all} ({:.1} %)",
                100.0 * right as f64 / f64::from(all)
            ));
        }
        Ok(lines.join("\n"))
    }
}
