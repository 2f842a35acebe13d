// Calls chat, embeddings and models with the client that openapi-generator made for typescript-fetch.
import { ChatApi, Configuration, EmbeddingsApi, ModelsApi } from './typescript-fetch/index';

const configuration = new Configuration({
  basePath: process.env.MODEL_POOL_URL + '/llm', accessToken: process.env.MODEL_POOL_KEY,
});

async function main() {
  const listed: any = await new ModelsApi(configuration).listModels();
  if (!listed.data.some((model: any) => model.id === 'tiny-guide')) throw new Error(JSON.stringify(listed));
  const chat = new ChatApi(configuration);
  const question = { role: 'user' as const, content: 'What is a priority?' };
  const request = { model: 'tiny-guide', maxTokens: 4, messages: [question] };
  const answer: any = await chat.createChatCompletion({ chatCompletionRequest: request });
  if (!answer.choices[0].message.content) throw new Error(JSON.stringify(answer));
  const raw = await chat.createChatCompletionRaw({ chatCompletionRequest: { ...request, stream: true } });
  const events = (await raw.raw.text()).split('\n').filter((line) => line.startsWith('data: '));
  if (events.length < 4 || events.at(-1) !== 'data: [DONE]') throw new Error(events.join('\n'));
  const vectors = await new EmbeddingsApi(configuration).createEmbeddings({
    embeddingRequest: { model: 'embedder', input: ['one two', 'three'] },
  });
  if (vectors.data.length !== 2) throw new Error(JSON.stringify(vectors));
  console.log('typescript-fetch passed');
}

main().catch((error) => { console.error(error); process.exit(1); });
