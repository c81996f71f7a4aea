// Plays exported agents: one session of onnxruntime-web for each, one step for each image.
import {environments} from "./environments.mjs";

const find = name => document.getElementById(name);
const say = text => { find("notice").textContent = text; };
const canvas = find("canvas").getContext("2d");
window.returns = {};  // of the episodes that ended, for each agent
let turn = 0;  // of the agent that is playing: another one ends its loop

async function runtime() {
  const ort = await import("./ort.wasm.bundle.min.mjs");
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = {wasm: new URL("ort-wasm-simd-threaded.wasm", import.meta.url).href};
  return ort;
}

async function play(ort, {name, env, file}) {
  const mine = ++turn, environment = environments[env], session = await ort.InferenceSession.create(file);
  const returns = window.returns[name] ??= [];
  while (mine === turn) {
    let state = environment.start(Math.random), terminated = false, sum = 0, steps = 0;
    while (mine === turn && !terminated && steps < environment.limit) {
      const observation = Float32Array.from(environment.observe(state));
      const {action} = await session.run({observation: new ort.Tensor("float32", observation, [1, observation.length])});
      let reward;
      [state, reward, terminated] = environment.step(state, Number(action.data[0]));
      sum += reward;
      steps += 1;
      canvas.clearRect(0, 0, 600, 400);
      environment.draw(canvas, state);
      say(`Episode ${returns.length + 1}, step ${steps}, return ${sum.toFixed(1)}`
        + (returns.length ? `; mean of ${returns.length} before: ${(returns.reduce((a, b) => a + b) / returns.length).toFixed(1)}` : ""));
      if (!find("fast").checked) await new Promise(done => setTimeout(done, 1000 / environment.fps));
      else if (steps % 20 === 0) await new Promise(done => setTimeout(done));
    }
    if (mine === turn) returns.push(sum);
  }
  await session.release();
}

try {
  const [ort, agents] = await Promise.all([runtime(), fetch("agents.json").then(answer => answer.json())]);
  find("agent").replaceChildren(...agents.map(({name}) => new Option(name)));
  const begin = () => play(ort, agents[find("agent").selectedIndex]).catch(error => say(String(error)));
  find("agent").addEventListener("change", begin);
  begin();
} catch (error) {
  say(`The agents or onnxruntime are not beside this page, or it was not opened through a server: ${error.message}`);
}
