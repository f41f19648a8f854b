'use strict';
// Adds a button to commands and code. Of a block with commands it copies only these, and not what they print.
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
