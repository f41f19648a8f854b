'use strict';
// Adds a copy button to each block of commands or code. From a block of commands the button copies only the
// commands, not their output.
document.addEventListener('DOMContentLoaded', () => {
  for (const block of document.querySelectorAll('div[class*="highlight-"]:not(.highlight-none):not(.highlight-text)')) {
    const button = block.querySelector('.highlight').appendChild(document.createElement('button'));
    button.className = 'copy';
    button.textContent = 'copy';
    button.onclick = () => {
      const code = block.querySelector('pre').cloneNode(true);
      for (const output of code.querySelectorAll('.go')) output.remove();
      const area = document.body.appendChild(document.createElement('textarea'));
      area.value = code.textContent.replace(/\n{2,}/g, '\n').trim() + '\n';
      area.select();
      button.textContent = document.execCommand('copy') ? 'copied' : 'press Ctrl+C';
      area.remove();
      setTimeout(() => button.textContent = 'copy', 2000);
    };
  }
});
