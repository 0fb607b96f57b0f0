// What the official JavaScript client of 0.3 sees: run with the base URL, the folder of the gates
// and a transport, it prints one JSON object, a member for each scenario, in the spelling of 0.3.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { randomUUID } from 'node:crypto';
import { ClientFactory, ClientFactoryOptions } from 'a2a-js-sdk-03/client';

const [url, gates, transport] = process.argv.slice(2);
const options = { preferredTransports: [transport] };
const client = await new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, options),
).createFromUrl(url);

const params = (text, { blocking = true, parts = [], ...more } = {}) => ({
  message: {
    kind: 'message', messageId: randomUUID(), role: 'user',
    parts: [{ kind: 'text', text }, ...parts], ...more,
  },
  configuration: { blocking },
});
const open = (gate) => writeFileSync(join(gates, gate), '');
const send = (text, more) => client.sendMessage(params(text, more));

async function all(stream, onEvent = () => {}) {
  const seen = [];
  for await (const event of stream) {
    seen.push(event);
    await onEvent(seen);
  }
  return seen;
}

// An error in a stream is an Error that has the one of the protocol as its cause.
async function failure(job) {
  try {
    await job();
  } catch (error) {
    return (error.cause ?? error).constructor.name.replace('JSONRPC', '');
  }
  return null;
}

const scenarios = {
  async blocking() {
    return send('echo hello');
  },
  async immediate() {
    const gate = randomUUID();
    const answer = await send(`gate ${gate} 1`, { blocking: false });
    open(gate);
    return answer;
  },
  async stream() {
    return all(client.sendMessageStream(params('stream 20 1')));
  },
  async resubscribe() {
    const gate = randomUUID();
    let id;
    for await (const event of client.sendMessageStream(params(`gate ${gate} 3`))) {
      if (event.artifact?.parts[0].text === '2 ') {
        id = event.taskId;
        break;
      }
    }
    return all(client.resubscribeTask({ id }), (seen) => seen.length === 1 && open(gate));
  },
  async cancel() {
    const { id } = await send(`gate ${randomUUID()} 1`, { blocking: false });
    let canceled;
    const events = await all(client.resubscribeTask({ id }), async (seen) => {
      if (seen.length === 1) canceled = await client.cancelTask({ id });
    });
    return { canceled, events, again: await failure(() => client.cancelTask({ id })) };
  },
  async turns() {
    const asked = await send('ask');
    const { id: taskId } = asked;
    const streamed = await all(client.sendMessageStream(params('ask', { taskId })));
    const answer = await send('echo this', { taskId });
    const get = (more) => client.getTask({ id: taskId, ...more });
    return {
      asked, streamed, answer, whole: await get(), last: await get({ historyLength: 1 }),
      zero: await get({ historyLength: 0 }),
    };
  },
  async reply() {
    return { sent: await send('reply just this'),
      streamed: await all(client.sendMessageStream(params('reply and this'))) };
  },
  async failed() {
    return send('fail');
  },
  async file() {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)).toString('base64');
    const parts = [{ kind: 'file', file: { bytes, mimeType: 'image/png' } }];
    const { id } = await send('echo a file', { parts });
    return client.getTask({ id });
  },
  async errors() {
    const { id: ended } = await send('echo done');
    const absent = randomUUID();
    const stream = (more) => all(client.sendMessageStream(params('echo x', more)));
    return {
      getAbsent: await failure(() => client.getTask({ id: absent })),
      cancelAbsent: await failure(() => client.cancelTask({ id: absent })),
      sendToAbsent: await failure(() => send('echo x', { taskId: absent })),
      streamToAbsent: await failure(() => stream({ taskId: absent })),
      resubscribeToAbsent: await failure(() => all(client.resubscribeTask({ id: absent }))),
      sendToEnded: await failure(() => send('echo x', { taskId: ended })),
      streamToEnded: await failure(() => stream({ taskId: ended })),
      resubscribeToEnded: await failure(() => all(client.resubscribeTask({ id: ended }))),
      cancelEnded: await failure(() => client.cancelTask({ id: ended })),
    };
  },
  async push() {
    const { id: task } = await send('ask');
    const make = (id) => client.setTaskPushNotificationConfig({
      taskId: task,
      pushNotificationConfig: {
        id, url: `https://hooks.test/${id}`, token: 't', authentication: { schemes: ['Bearer'] },
      },
    });
    const find = (pushNotificationConfigId) =>
      client.getTaskPushNotificationConfig({ id: task, pushNotificationConfigId });
    const made = [await make('a'), await make('b')];
    const found = await find('a');
    await client.deleteTaskPushNotificationConfig({ id: task, pushNotificationConfigId: 'a' });
    const left = await client.listTaskPushNotificationConfig({ id: task });
    return { task, made, found, left, absent: await failure(() => find('a')) };
  },
};

const said = { transport: client.transport.constructor.name.replace(/^_/, '') };
for (const [name, scenario] of Object.entries(scenarios)) said[name] = await scenario();
process.stdout.write(JSON.stringify(said));
