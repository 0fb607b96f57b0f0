// What the official JavaScript client sees: run with the base URL, the folder of the gates and a
// binding, it prints one JSON object, a member for each scenario, in the spelling of the wire.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { ClientFactory, ClientFactoryOptions } from '@a2a-js/sdk/client';
import {
  ListTasksRequest, ListTasksResponse, Message, SendMessageRequest, StreamResponse, Task,
} from '@a2a-js/sdk';

const [url, gates, asked] = process.argv.slice(2);
const options = { preferredTransports: [asked] };
const client = await new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, options),
).createFromUrl(url);

const request = (text, { now = false, ...more } = {}) =>
  SendMessageRequest.fromJSON({
    message: { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }], ...more },
    configuration: { returnImmediately: now },
  });
const ident = (id, more = {}) => ({ tenant: '', id, ...more });
const open = (gate) => writeFileSync(join(gates, gate), '');
const toJson = (answer) =>
  'messageId' in answer ? { message: Message.toJSON(answer) } : { task: Task.toJSON(answer) };

const send = async (text, more) => toJson(await client.sendMessage(request(text, more)));
const list = async (fields) =>
  ListTasksResponse.toJSON(await client.listTasks(ListTasksRequest.fromJSON(fields)));

async function all(stream, onEvent = () => {}) {
  const seen = [];
  for await (const event of stream) {
    seen.push(StreamResponse.toJSON(event));
    await onEvent(seen);
  }
  return seen;
}

async function failure(job) {
  try {
    await job();
  } catch (error) {
    return error.name;
  }
  return null;
}

const scenarios = {
  async blocking() {
    return send('echo hello');
  },
  async immediate() {
    const gate = randomUUID();
    const answer = await send(`gate ${gate} 1`, { now: true });
    open(gate);
    return answer;
  },
  async stream() {
    return all(client.sendMessageStream(request('stream 20 1')));
  },
  async subscribe() {
    const gate = randomUUID();
    let id;
    for await (const event of client.sendMessageStream(request(`gate ${gate} 3`))) {
      const { artifactUpdate } = StreamResponse.toJSON(event);
      id = artifactUpdate?.taskId;
      if (artifactUpdate?.artifact.parts[0].text === '2 ') break;
    }
    return all(client.resubscribeTask(ident(id)), (seen) => seen.length === 1 && open(gate));
  },
  async cancel() {
    const { task } = await send(`gate ${randomUUID()} 1`, { now: true });
    let canceled;
    const events = await all(client.resubscribeTask(ident(task.id)), async (seen) => {
      if (seen.length === 1) canceled = Task.toJSON(await client.cancelTask(ident(task.id)));
    });
    const again = await failure(() => client.cancelTask(ident(task.id)));
    return { canceled, events, again };
  },
  async pages() {
    const contextId = randomUUID();
    const sent = [];
    for (let n = 0; n < 5; n++) sent.push((await send(`echo ${n}`, { contextId })).task.id);
    const pages = [];
    let pageToken = '';
    do {
      pages.push(await list({ contextId, pageSize: 2, pageToken }));
      pageToken = pages.at(-1).nextPageToken;
    } while (pageToken);
    return { sent, pages };
  },
  async followUp() {
    const asked = await send('ask');
    const answer = await send('echo this', { taskId: asked.task.id });
    const get = async (more) => Task.toJSON(await client.getTask(ident(asked.task.id, more)));
    const last = await get({ historyLength: 1 });
    return { asked, answer, whole: await get(), last };
  },
  async message() {
    return { sent: await send('reply just this'),
      streamed: await all(client.sendMessageStream(request('reply and this'))) };
  },
  async errors() {
    const { task } = await send('echo done');
    const absent = randomUUID();
    return {
      getAbsent: await failure(() => client.getTask(ident(absent))),
      cancelAbsent: await failure(() => client.cancelTask(ident(absent))),
      sendToAbsent: await failure(() => send('echo x', { taskId: absent })),
      subscribeToAbsent: await failure(() => all(client.resubscribeTask(ident(absent)))),
      sendToEnded: await failure(() => send('echo x', { taskId: task.id })),
      subscribeToEnded: await failure(() => all(client.resubscribeTask(ident(task.id)))),
      cancelEnded: await failure(() => client.cancelTask(ident(task.id))),
      tooLargeAPage: await failure(() => list({ pageSize: 101 })),
    };
  },
};

const transport = client.transport.constructor.name;
const said = { version: client.protocolVersion, asked, transport };
for (const [name, scenario] of Object.entries(scenarios)) said[name] = await scenario();
process.stdout.write(JSON.stringify(said));
